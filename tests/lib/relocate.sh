# relocate DIRECTORY: makes plugins' files in a copied CNI bin directory (#!HOST --plugin=NAME) start the host executable there.
relocate() {
  for file in "$1"/*; do
    if [ -f "$file" ] && [ ! -L "$file" ] && head -c 200 "$file" | grep -aq '^#!/.*/postern --plugin='; then
      plugin=$(sed 's/.* --plugin=//' "$file")
      printf '#!%s/postern --plugin=%s\n' "$1" "$plugin" >"$file"
    fi
  done
}
