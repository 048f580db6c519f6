# Sourced by the fetch scripts. They fetch packages of another Debian suite with apt's client, without root. A private source
# list, state and cache leave the machine's package lists unchanged.
#
# debian_debs SUITE DIRECTORY PACKAGE...: downloads the packages and all that they depend on, as files.
# debian_fetch SUITE DIRECTORY PACKAGE...: downloads and unpacks the packages under DIRECTORY, without dependencies. Prints
# "PACKAGE VERSION" lines. META>BEGINNING stands for the dependencies of META whose names start with BEGINNING. The mirror is
# $POSTERN_DEBIAN_MIRROR, or the mirror that this machine's apt uses for its release. `$architecture`, if it is set, is Debian's name of
# another architecture than this machine's.

debian_mirror() {
  if [ -n "${POSTERN_DEBIAN_MIRROR-}" ]; then echo "$POSTERN_DEBIAN_MIRROR"; return; fi
  local codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
  # Only lines of this release's suite count: third-party lists and the security archive have other suites.
  apt-get indextargets --format '$(SITE) $(RELEASE)' 'Identifier: Packages' 2>/dev/null |
    awk -v release="$codename" '$2 == release || $2 == "sid" || $2 == "unstable" { print $1; exit }'
}

# debian_begin SUITE: makes a private set of package lists in $work, and apt's $options for it.
debian_begin() {
  local suite=$1 mirror
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "this script needs apt-get and dpkg-deb (a Debian or derived system)" >&2; return 1; }
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || {
    echo "apt's configuration names no mirror of this release; set POSTERN_DEBIAN_MIRROR to a Debian mirror's URL" >&2; return 1; }
  work=$(mktemp -d "${TMPDIR:-/tmp}/postern-apt.XXXXXX")
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
  : > "$work/status"
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=""
  [ -e "$keyring" ] && signed="[signed-by=$keyring] "
  printf '%s\n' "deb $signed$mirror $suite main" "deb-src $signed$mirror $suite main" > "$work/sources.list"
  options=(
    -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o "Dir::State=$work" -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache"
    -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false -o Acquire::Retries=3 -o APT::Update::Post-Invoke-Success::=
    -o DPkg::Post-Invoke::=)
  [ -z "${architecture-}" ] || options+=(-o "APT::Architecture=$architecture" -o "APT::Architectures::=$architecture")
}

debian_fetch() {
  local suite=$1 directory=$2 work options status=0
  shift 2
  debian_begin "$suite" || return
  # The long lists of source packages are not needed here.
  sed -i '/^deb-src/d' "$work/sources.list"
  mkdir -p "$directory"
  debian_names() { # debian_names PACKAGE...: the names, with META>BEGINNING resolved
    local package
    for package in "$@"; do
      case $package in
        *">"*) apt-cache "${options[@]}" depends "${package%%>*}" | sed -n "s/^ *Depends: \(${package#*>}.*\)/\1/p" ;;
        *) echo "$package" ;;
      esac
    done
  }
  # shellcheck disable=SC2046 # each name is a word
  { apt-get "${options[@]}" update -qq && (cd "$work/debs" && apt-get "${options[@]}" download -qq $(debian_names "$@")) ; } >&2 || status=$?
  if [ $status = 0 ]; then
    local deb
    for deb in "$work"/debs/*.deb; do
      dpkg-deb -x "$deb" "$directory" && dpkg-deb -W --showformat '${Package} ${Version}\n' "$deb" || status=$?
    done
  else
    echo "could not fetch $* from suite $suite (messages of apt-get above)" >&2
  fi
  rm -rf "$work"
  return $status
}

debian_debs() {
  local suite=$1 directory=$2 work options status=0
  shift 2
  debian_begin "$suite" || return
  sed -i '/^deb-src/d' "$work/sources.list"
  mkdir -p "$directory"
  # apt takes no installed package into account, because the private status file is empty.
  { apt-get "${options[@]}" update -qq &&
    apt-get "${options[@]}" install -qq --yes --download-only --no-install-recommends "$@"; } >&2 || status=$?
  if [ $status = 0 ]; then mv "$work"/cache/archives/*.deb "$directory" || status=$?
  else echo "could not fetch $* and their dependencies from suite $suite (messages of apt-get above)" >&2; fi
  rm -rf "$work"
  return $status
}

# debian_source SUITE DIRECTORY SOURCE: downloads the source package's upstream archive, and unpacks it as DIRECTORY.
debian_source() {
  local suite=$1 directory=$2 source=$3 work options status=0
  debian_begin "$suite" || return
  { apt-get "${options[@]}" update -qq && (cd "$work/debs" && apt-get "${options[@]}" source -qq --download-only --tar-only "$source") ; } >&2 || status=$?
  if [ $status = 0 ]; then
    mkdir -p "$directory" && tar -xf "$work"/debs/*.orig.tar.* --strip-components=1 -C "$directory" || status=$?
  else
    echo "could not fetch the source of $source from suite $suite (messages of apt-get above)" >&2
  fi
  rm -rf "$work"
  return $status
}
