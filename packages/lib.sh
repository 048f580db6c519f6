# Sourced by the scripts in packages/, in the top directory: names, and the steps that several artefacts share.
#
# begin ARCH [all]: checks the architecture, and sets
#   arch     x86_64 or aarch64; `all`, if the script allows this word, for what is for both
#   version  the version in Cargo.toml (POSTERN_VERSION sets another, for tests of upgrades)
#   triple   Rust's target for the node
#   dist     the directory of the artefacts, target/dist/ARCH (POSTERN_DIST sets another)
#   stage    the staging tree, which packages/stage fills
# Archives and packages are compressed with the level POSTERN_LEVEL, if it is set: tests need no small files.
# It exports SOURCE_DATE_EPOCH, the time of each file in an artefact: the time of the commit, if the caller sets no other time.
# POSTERN_MAINTAINER, "NAME <ADDRESS>", is the packages' maintainer. The default is an address that nobody reads.
maintainer=${POSTERN_MAINTAINER:-Postern maintainers <maintainers@postern.example>}
begin() {
  arch=$1
  case $arch in
    x86_64 | aarch64 | "${2:-x86_64}") ;;
    *) echo "${0##*/}: \"$arch\" is no architecture of a node: x86_64 or aarch64" >&2; exit 2 ;;
  esac
  version=${POSTERN_VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
  triple=$arch-unknown-linux-musl
  dist=${POSTERN_DIST:-target/dist}/$arch
  stage=$dist/stage
  if [ -z "${SOURCE_DATE_EPOCH-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null) || {
      echo "${0##*/}: this tree has no git, so the time of the files is unknown: set SOURCE_DATE_EPOCH to the release's second" >&2
      exit 1
    }
  fi
  export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
  umask 022
}

# package_version: prints the version as dpkg and rpm compare versions: a pre-release, such as 0.3.0-rc.1, is older only with a tilde.
package_version() { echo "$version" | tr - '~'; }

# staged: fails if there is no staging tree.
staged() {
  [ -x "$stage/base/postern" ] || { echo "${0##*/}: there is no $stage/base: packages/stage $arch" >&2; exit 1; }
}

# need PROGRAM PACKAGE: fails if a program is missing, and names Debian's package.
need() {
  command -v "$1" > /dev/null || { echo "${0##*/}: $1 is missing: apt-get install $2" >&2; exit 1; }
}

# has PART: true if the stage has this part. A stage of ready programs (packages/stage --from) may lack optional parts.
has() { [ -n "$(ls -A "$stage/$1" 2> /dev/null)" ]; }

# crate_places FILE: prints those sections of a person's settings of cargo that say only where crates come from. Other sections have flags
# and profiles, which change the bytes.
crate_places() { awk '/^[[:blank:]]*\[/ { keep = $0 ~ /^[[:blank:]]*\[(source|registry|registries|net|http)[].]/ } keep' "$1"; }

# xtask ARGUMENT...: runs a program of host/xtask. A build needs no private namespaces, as tests do (.cargo/config.toml).
xtask() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
  env "CARGO_TARGET_${host}_RUNNER=env" cargo run --quiet --locked --package xtask -- "$@"
}

# even DIRECTORY: gives each object the modes and the time that it has on every machine.
even() {
  find "$1" -type d -exec chmod 755 {} +
  find "$1" -type f -perm /111 -exec chmod 755 {} +
  find "$1" -type f ! -perm /111 -exec chmod 644 {} +
  find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# kilobytes DIRECTORY: prints the size of its files, which is the same on every file system.
kilobytes() { find "$1" -type f -printf '%s\n' | awk '{ total += int(($1 + 1023) / 1024) } END { print total + 0 }'; }

# sums DIRECTORY: prints the SHA-256 of each file below a directory, as `sha256sum --check` reads them.
sums() { (cd "$1" && find . -type f -printf '%P\n' | sort | xargs -r -d '\n' sha256sum); }

# place_manual SHARE ZSH FISH: places the manual's pages and the completions below /usr/share. Distributions name the directories of
# zsh and fish differently.
place_manual() {
  local page completions=$stage/share/completions
  for page in "$stage"/share/man/man?/*; do
    install -d "$1/man/man${page##*.}"
    gzip -9n < "$page" > "$1/man/man${page##*.}/${page##*/}.gz"
  done
  install -D -m 644 "$completions/postern.bash" "$1/bash-completion/completions/postern"
  install -D -m 644 "$completions/_postern" "$1/zsh/$2/_postern"
  install -D -m 644 "$completions/postern.fish" "$1/fish/$3/postern.fish"
}

# filled FILE: prints a template with its values. @FUNCTIONS@ is the text of scripts/functions.sh.
filled() {
  sed -e '/^@FUNCTIONS@$/{r packages/scripts/functions.sh' -e 'd}' "$1" |
    sed -e "s|@VERSION@|$version|g" -e "s|@ARCHITECTURE@|${architecture-}|g" -e "s|@SIZE@|${size-}|g" -e "s|@BY@|${by-}|g" -e "s|@DATE@|${date-}|g" -e "s|@MAINTAINER@|$maintainer|g"
}
