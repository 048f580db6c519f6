# Sourced by tests/suite: what parts of a suite run, and how skipped tests are counted. tests/lib/programs.sh comes before.

# Programs of tests/tests by name, and lines of the other ones.
declare -A program=()
units=() administration=()

# build_programs: builds all test programs, and keeps where they are.
build_programs() {
  local list target package kind name directory executable line others
  # A list in a variable, and no pipe: a build that fails ends this here.
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

run() { # run DIRECTORY PROGRAM [ARGUMENT...]: as cargo would
  local directory=$1 tree=$PWD
  shift
  (cd "$directory" && exec "$tree/tests/in-namespaces" "$@")
}
integration() { # integration PROGRAM[::MODULE] [ARGUMENT...]: a program of tests/tests, or one module of it
  local name=${1%%::*} module=${1#*::} tests=()
  [ "$1" != "$name" ] || module=
  shift
  [ -n "${program[$name]-}" ] || { echo "there is no test program $name" >&2; return 1; }
  if [ -n "$module" ]; then
    mapfile -t tests < <(tests_of "${program[$name]}" "$module")
    [ ${#tests[@]} -gt 0 ] || { echo "there is no test in $name::$module" >&2; return 1; }
    set -- --exact "${tests[@]}" "$@"
  fi
  run tests "${program[$name]}" --quiet "$@"
}
language() { # language NAME: a plugin in it, built as its author would
  tests/languages/build "$1" || return
  run tests "${program[plugins]}" --ignored --exact --nocapture "languages::$1"
}
firewalld() { # a real one; where its packages can't be had, that is said
  tests/install-packages firewalld || return 77
  integration plugins::firewall --ignored
}
each() { # each WHOSE LINE...: the programs of packages whose directory is WHOSE (a pattern)
  local whose=$1 rc=0 count=0 package kind name directory executable
  shift
  for line in "$@"; do
    read -r package kind name directory executable <<< "$line"
    # shellcheck disable=SC2254 # it is a pattern
    case $package in $whose) count=$((count + 1)); echo "$package: $kind $name"; run "$directory" "$executable" --quiet || rc=1 ;; esac
  done
  [ $count -gt 0 ] || { echo "there is no program of $whose"; rc=1; }
  return $rc
}
unit_tests() { each '*' "${units[@]}"; }
administration() { each "$1" "${administration[@]}"; } # administration PACKAGE

as_root() { # as_root: tests of devices, as root in private namespaces. Only there a BPF program is loaded, and settings below /sys are written
  local test rc=0
  [ "$(id -u)" = 0 ] || { echo "only root may load BPF programs"; return 77; }
  command -v python3 > /dev/null || { echo "python3 is not installed"; return 77; }
  for test in devices::no_program_of_the_container_reads_the_nodes_packets held_devices::settings_below_sys_are_put_back; do
    "${program[plugins]}" --list | grep -qx "$test: test" || { echo "there is no test $test"; rc=1; }
    POSTERN_PRIVATE=1 tests/runtimes/in-private-namespaces "${program[plugins]}" --nocapture --exact $test || rc=1
  done
  return $rc
}

# Tests say `SKIPPED: TEST: REASON` past the capture of their program (postern_tests::skip).
skips() { # skips LOG: prints TEST and REASON, separated by a tab
  grep -o 'SKIPPED: .*' "$1" | sed -n 's/^SKIPPED: \([^:]*\(::[^:]*\)*\): /\1\t/p'
}
summary() { # summary LOGS: prints how many tests each reason has, and how many of these another part ran, in the virtual machine or as root
  local ran
  ran=$(sed -n 's/^test \(.*\) \.\.\. ok$/\1/p' "$1"/[0-9]* 2> /dev/null | sort -u)
  awk -F '\t' -v ran="$ran" 'BEGIN { split(ran, names, "\n"); for (i in names) passed[names[i]] = 1 }
    { count[$2]++; if ($1 in passed) elsewhere[$2]++ }
    END { for (reason in count) printf "  %d: %s%s\n", count[reason], reason,
      elsewhere[reason] ? " (" elsewhere[reason] " of them passed in another part)" : "" }' | sort -t: -k2
}
