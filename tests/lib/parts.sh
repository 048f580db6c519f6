# Sourced by tests/suite after tests/lib/programs.sh: the functions that parts of a suite call, and the count of skipped tests.

# Programs of tests/tests by name, and lines of cargo_tests for the other programs.
declare -A program=()
units=() administration=()

# build_programs: builds all test programs, and keeps their paths.
build_programs() {
  local list target package kind name directory executable line others
  # A variable takes the list, because a pipe would hide a failed build.
  list=$(set -o pipefail; cargo_tests "${workspace[@]}" --lib --bins --tests) || return
  while read -r package kind name directory executable; do
    line="$package $kind $name $directory $executable"
    case "$package $kind" in
      "tests test") program[$name]=$executable ;;
      "admin "* | "sandbox "*) administration+=("$line") ;;
      *) units+=("$line") ;;
    esac
  done <<< "$list"
  target=$(tests/run-target)
  [ "$target" != "$(rustc -vV | sed -n 's/^host: //p')" ] || return 0
  list=$(set -o pipefail; cargo_tests --target "$target" "${linked[@]/#/--package=postern-}" --lib --tests) || return
  mapfile -t others < <(printf '%s\n' "${units[@]}" | grep -Ev "^(confine|heap|state|types) ")
  mapfile -t units <<< "$list"
  units+=("${others[@]}")
}

run() { # run DIRECTORY PROGRAM [ARGUMENT...]: runs a program in private namespaces, as cargo does
  local directory=$1 tree=$PWD
  shift
  (cd "$directory" && exec "$tree/tests/in-namespaces" "$@")
}
# integration PROGRAM[::MODULE[,MODULE]...] [ARGUMENT...]: runs a program of tests/tests, or some of its modules
integration() {
  local name=${1%%::*} modules=${1#*::} module found tests=()
  [ "$1" != "$name" ] || modules=
  shift
  [ -n "${program[$name]-}" ] || { echo "there is no test program $name" >&2; return 1; }
  for module in ${modules//,/ }; do
    mapfile -t found < <(tests_of "${program[$name]}" "$module")
    [ ${#found[@]} -gt 0 ] || { echo "there is no test in $name::$module" >&2; return 1; }
    tests+=("${found[@]}")
  done
  [ ${#tests[@]} = 0 ] || set -- --exact "${tests[@]}" "$@"
  run tests "${program[$name]}" --quiet "$@"
}
with() { # with VARIABLE=VALUE COMMAND...: each part is a separate process, so the variable affects only this part
  export "${1?}"
  "${@:2}"
}
language() { # language NAME: builds a plugin in this language as an author does, and tests it
  tests/languages/build "$1" || return
  run tests "${program[plugins]}" --ignored --exact --nocapture "languages::$1"
}
firewalld() { # runs the tests with a real firewalld, or returns 77 if its packages can't be installed
  tests/install-packages firewalld || return 77
  integration plugins::firewall --ignored
}
each() { # each PATTERN LINE...: runs the programs of packages whose directory matches PATTERN
  local whose=$1 rc=0 count=0 package kind name directory executable
  shift
  for line in "$@"; do
    read -r package kind name directory executable <<< "$line"
    # shellcheck disable=SC2254 # $whose is a pattern
    case $package in $whose) count=$((count + 1)); echo "$package: $kind $name"; run "$directory" "$executable" --quiet || rc=1 ;; esac
  done
  [ $count -gt 0 ] || { echo "there is no program of $whose"; rc=1; }
  return $rc
}
unit_tests() { each '*' "${units[@]}"; }
administration() { each "$1" "${administration[@]}"; } # administration PACKAGE

as_root() { # as_root: runs tests of devices as root in private namespaces. Only root may load BPF programs and write settings below /sys
  local test rc=0
  [ "$(id -u)" = 0 ] || { echo "only root may load BPF programs"; return 77; }
  command -v python3 > /dev/null || { echo "python3 is not installed"; return 77; }
  for test in devices::no_program_of_the_container_reads_the_nodes_packets held_devices::settings_below_sys_are_put_back; do
    "${program[plugins]}" --list | grep -qx "$test: test" || { echo "there is no test $test"; rc=1; }
    POSTERN_PRIVATE=1 tests/runtimes/in-private-namespaces "${program[plugins]}" --nocapture --exact $test || rc=1
  done
  return $rc
}

# Skipped tests print `SKIPPED: TEST: REASON`, which the test harness does not capture (postern_tests::skip).
skips() { # skips LOG: prints TEST and REASON, separated by a tab
  grep -o 'SKIPPED: .*' "$1" | sed -n 's/^SKIPPED: \([^:]*\(::[^:]*\)*\): /\1\t/p'
}
summary() { # summary LOGS: prints the number of skipped tests by reason, and how many of them passed in another part
  local ran
  ran=$(sed -n 's/^test \(.*\) \.\.\. ok$/\1/p' "$1"/[0-9]* 2> /dev/null | sort -u)
  awk -F '\t' -v ran="$ran" 'BEGIN { split(ran, names, "\n"); for (i in names) passed[names[i]] = 1 }
    { count[$2]++; if ($1 in passed) elsewhere[$2]++ }
    END { for (reason in count) printf "  %d: %s%s\n", count[reason], reason,
      elsewhere[reason] ? " (" elsewhere[reason] " of them passed in another part)" : "" }' | sort -t: -k2
}
