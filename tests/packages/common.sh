# Sourced by the tests of packages, in the top directory.
#
# two_versions PLUGIN-DIRECTORY: stages the programs of a build in $work twice, as versions 0.0.1 and 0.0.2; the later version has another
# policy of bridge. Sets `$machine`. Ends the script with status 77 if a private node can't be made.
two_versions() {
  local plugins
  plugins=$(readlink -f "${1:-${POSTERN_CNI_BIN:-target/cni/bin}}") || true
  [ -x "$plugins/postern" ] || { echo "${0##*/}: no postern in ${plugins:-target/cni/bin}: make build" >&2; exit 1; }
  tests/packages/fetch || { echo "SKIPPED: no private Debian node, so no test of packages"; exit 77; }
  machine=$(uname -m)
  work=$(mktemp -d "${TMPDIR:-/tmp}/postern-packages.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  export POSTERN_LEVEL=1
  POSTERN_DIST=$work/0.0.1 packages/stage "$machine" --from "$plugins"
  cp -a "$work/0.0.1" "$work/0.0.2"
  echo "# version 0.0.2" >> "$work/0.0.2/$machine/stage/base/postern.d/bridge.toml"
}
# both KIND: makes the artefacts of one kind (packages/KIND) of both versions, in $work/made.
both() {
  local version
  mkdir -p "$work/made"
  for version in 0.0.1 0.0.2; do
    POSTERN_VERSION=$version POSTERN_DIST=$work/$version "packages/$1" "$machine"
    find "$work/$version/$machine" -maxdepth 1 -type f -exec mv -t "$work/made" {} +
  done
}
# two_images PLUGIN-DIRECTORY: makes images of the programs of a build in $work/made, in two versions; the later version has another
# policy of bridge. An image has no C library, so its programs must be static. Needs `cannot`. Sets `$machine`.
two_images() {
  local plugins version program
  machine=$(uname -m)
  plugins=$(readlink -f "${1:-${POSTERN_CNI_BIN:-target/cni/bin}}") || true
  [ -x "$plugins/postern" ] || { echo "${0##*/}: no postern in ${plugins:-target/cni/bin}: make build" >&2; exit 1; }
  for program in postern postern-admin; do packages/static "$plugins/$program" "$machine" || cannot "an image needs a static $program"; done
  work=$(mktemp -d "${TMPDIR:-/tmp}/postern-image.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/build" "$work/made"
  cp -R "$plugins/." "$work/build"
  for version in 0.0.1 0.0.2; do
    image_of $version
    echo "# the next version" >> "$work/build/postern.d/bridge.toml"
  done
}
# image_of VERSION: makes an image of $work/build in $work/made.
image_of() {
  POSTERN_DIST=$work/$1 packages/stage "$machine" --from "$work/build"
  POSTERN_LEVEL=1 POSTERN_VERSION=$1 POSTERN_DIST=$work/$1 packages/image "$machine"
  mv "$work/$1/$machine"/*.oci.tar "$work/made"
}
