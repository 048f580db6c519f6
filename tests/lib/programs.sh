# cargo_tests CARGO-ARGUMENT...: builds tests, and prints a line for each program: PACKAGE KIND NAME DIRECTORY PROGRAM.
cargo_tests() {
  cargo test --no-run --message-format=json "$@" | jq -r 'select(.executable != null and .profile.test)
    | "\(.manifest_path | split("/")[-2]) \(.target.kind[0]) \(.target.name) \(.manifest_path | rtrimstr("/Cargo.toml")) \(.executable)"'
}
# Each call builds the tests of all these packages: with another choice of packages, cargo would build the same crates again.
# `postern` and `postern-wasi` have no tests. The sandbox is tested with its compiler.
workspace=(--workspace --exclude postern --exclude postern-wasi --features postern-sandbox/compiler)
# These crates depend most on the C library (system calls, seccomp filters, files, messages, heap), so they are tested with the C
# library of runs.
linked=(confine heap state types)
# build_tests: builds all test programs. Call it in the top directory.
build_tests() {
  local target
  cargo test --no-run --quiet "${workspace[@]}" --lib --bins --tests
  target=$(tests/run-target)
  [ "$target" = "$(rustc -vV | sed -n 's/^host: //p')" ] ||
    cargo test --no-run --quiet --target "$target" "${linked[@]/#/--package=postern-}" --lib --tests
}
# integration_tests [NAME...]: builds these programs of tests/tests, or all, and prints a line for each: NAME PROGRAM.
integration_tests() {
  local choice=() name
  for name in "$@"; do choice+=(--test "$name"); done
  [ $# -gt 0 ] || choice=(--lib --bins --tests)
  cargo_tests --quiet "${workspace[@]}" "${choice[@]}" | sed -n 's/^tests test \([^ ]*\) [^ ]* /\1 /p'
}
# tool NAME: prints the path of a program of tests/src/bin. The build uses the same packages as tests/suite, so nothing is built
# twice.
tool() {
  cargo test --no-run --quiet --message-format=json "${workspace[@]}" --test plugins |
    jq -r --arg name "$1" 'select(.executable != null and (.profile.test | not) and .target.name == $name).executable'
}
# tests_of PROGRAM MODULE: prints the names of the tests of one module of a program.
tests_of() { "$1" --list | sed -n "s/^\($2::.*\): test$/\1/p"; }
