# code FILE: prints a Rust file on one line, without its comments and its tests.
code() {
  awk 'inside { inside = !/^}/; next } /^#\[cfg\(test\)\]$/ { held = 1; next } held && /^mod tests \{/ { inside = 1; held = 0; next }
    { held = 0; sub(/\/\/.*/, ""); printf "%s ", $0 }' "$1"
}
