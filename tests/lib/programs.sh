# cargo_tests CARGO-ARGUMENT...: builds tests, and prints a line of each program: PACKAGE KIND NAME DIRECTORY PROGRAM.
cargo_tests() {
  cargo test --no-run --message-format=json "$@" | jq -r 'select(.executable != null and .profile.test)
    | "\(.manifest_path | split("/")[-2]) \(.target.kind[0]) \(.target.name) \(.manifest_path | rtrimstr("/Cargo.toml")) \(.executable)"'
}
# Of all packages together, whichever test is wanted: with another choice cargo would build the same crates once more.
# `postern` and `postern-wasi` have no test of their own. The sandbox is tested with its compiler.
workspace=(--workspace --exclude postern --exclude postern-wasi --features postern-sandbox/compiler)
# integration_tests [NAME...]: builds these of tests/tests, or all, and prints a line of each: NAME PROGRAM.
integration_tests() {
  local choice=() name
  for name in "$@"; do choice+=(--test "$name"); done
  [ $# -gt 0 ] || choice=(--lib --bins --tests)
  cargo_tests --quiet "${workspace[@]}" "${choice[@]}" | sed -n 's/^tests test \([^ ]*\) [^ ]* /\1 /p'
}
# tool NAME: prints the path of a program of tests/src/bin. It is built with the tests, as tests/suite builds them: nothing is
# built twice.
tool() {
  cargo test --no-run --quiet --message-format=json "${workspace[@]}" --test plugins |
    jq -r --arg name "$1" 'select(.executable != null and (.profile.test | not) and .target.name == $name).executable'
}
# tests_of PROGRAM MODULE: prints the names of the tests of one module of a program.
tests_of() { "$1" --list | sed -n "s/^\($2::.*\): test$/\1/p"; }
