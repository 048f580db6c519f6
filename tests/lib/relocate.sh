# relocate DIRECTORY: makes the plugins' files (#!HOST --plugin=NAME) of a copied CNI bin directory start DIRECTORY/postern.
relocate() {
  for file in "$1"/*; do
    if [ -f "$file" ] && [ ! -L "$file" ] && head -c 200 "$file" | grep -aq '^#!/.*/postern --plugin='; then
      plugin=$(sed 's/.* --plugin=//' "$file")
      printf '#!%s/postern --plugin=%s\n' "$1" "$plugin" >"$file"
    fi
  done
}
