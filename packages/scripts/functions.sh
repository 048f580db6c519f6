# Functions of the packages' scripts (packages/scripts/functions.sh). A package only brings a bundle; its scripts call the product's
# own install. So no package manager deletes the files of a version that runs still use. No script names its own version: the base may
# be another one already.
by=@BY@
library=/usr/lib/postern
state=/run/postern
# The plugins' files that postern-cni has placed, one per line.
taken=$library/bundle/taken
say() { echo "postern: $*" >&2; }

# bundle: prints the directory of the bundle. While rpm upgrades, there are two, and neither is the right one before the end.
bundle() {
  set -- $library/bundle/*/postern-admin
  if [ $# -gt 1 ]; then
    say "there are several bundles in $library/bundle. If both dpkg and rpm have the package postern, remove it by one, and install it again by the other"
    return 1
  fi
  [ -x "$1" ] || { say "there is no bundle in $library/bundle: install the package postern again"; return 1; }
  echo "${1%/*}"
}

# place DIRECTORY [OPTION...]: installs the bundle; the plugins' files come into a CNI bin directory. With --divert, another package that
# brings a file of the same name puts the file beside ours, as NAME.native.
place() {
  from=$(bundle) || return
  directory=$1
  shift
  "$from/postern-admin" install --from "$from" --prefix /usr --by "$by" --bin-dir "$directory" "$@"
}

# take DIRECTORY [OPTION...], for postern-cni: places the plugins' files, except those whose names the operator gave back.
take() {
  from=$(bundle) || return
  directory=$1 names='' given=''
  shift
  if grep -q "^$directory/" $taken 2> /dev/null && ! grep -qxF "$directory" $library/bin-directories 2> /dev/null; then
    say "$directory is the operator's, and stays as it is"
    return 0
  fi
  for plugin in "$from"/postern.d/*.json; do
    plugin=${plugin##*/} plugin=${plugin%.json}
    if given_back "$directory/$plugin"; then given="$given $plugin"; else names="$names,$plugin"; fi
  done
  if [ -n "$given" ]; then
    say "in $directory these names are the operator's, and stay as they are:$given"
    [ -n "$names" ] || return 0
    set -- --plugins "${names#,}" "$@"
  fi
  place "$directory" "$@" || return
  { cat $taken 2> /dev/null; echo "${names#,}" | tr , '\n' | sed "s|^|$directory/|"; } | sort -u > $taken.new && mv -f $taken.new $taken
}

# given_back FILE: true if postern-cni has placed this file once, but it is neither Postern's nor noted now.
given_back() {
  grep -qxF "$1" $taken 2> /dev/null && [ -z "$(starts "$1")" ] && ! grep -qxF "$1" $library/placed-files 2> /dev/null
}

# starts FILE: prints the host executable that a plugin's file of Postern starts, and nothing for another file.
starts() { [ ! -f "$1" ] || LC_ALL=C sed -n 's|^#![[:blank:]]*\([^[:blank:]]*/postern\)[[:blank:]]\{1,\}--plugin=.*|\1|p;q' "$1"; }

# installed: true if a package made the present installation. An archive may have replaced the package's installation.
installed() { [ "$(cat $library/installed-by 2> /dev/null)" = "$by" ]; }

# without: installs what the removal of an optional package has left.
without() {
  if installed && bundle > /dev/null 2>&1; then place $library/bin --without-missing; fi
}

# take_back [OPTION...]: calls the uninstall of the installed version, or of the bundle if a removal was killed before.
take_back() {
  admin=$library/postern-admin
  [ -x $admin ] || admin=$(bundle 2> /dev/null || true)/postern-admin
  [ ! -x "$admin" ] || "$admin" uninstall --yes --from-package --prefix /usr "$@"
}

# leave DIRECTORY...: removes the plugins' files from CNI bin directories with their diversions, and puts the native plugins back.
leave() {
  rm -f $taken $taken.new
  if installed; then
    for directory; do take_back --bin-dir "$directory" || return; done
  fi
}

# remove: removes the installation, and says how to end what needs records. Records and leases stay, so that a later installation knows
# the attachments again.
remove() {
  installed || return 0
  take_back --keep-state
  needs=$(needs)
  if [ -n "$needs" ]; then
    say "$needs. The records stay in $state, and the audit log stays in /var/log/postern."
    say "To end them: install postern again and delete their containers; \`postern gc\` removes what deleted containers left."
  fi
}

# natives CHANGE COUNT DIRECTORY, for rpm: another package, of which COUNT versions are there, has "written" native plugins over our files,
# or has "deleted" our files as its own. The plugin that it replaced or deleted so is our NAME.native; an earlier file, the operator's,
# is NAME.native-1. A first package replaces nothing of its own. Without an installation, or between two bundles, the end of the
# transaction places the files.
natives() {
  installed && bundle > /dev/null 2>&1 || return 0
  for plugin in "$library"/postern.d/*.json; do
    plugin=${plugin##*/}
    file=$3/${plugin%.json}
    ! given_back "$file" || continue
    case $1-$2 in
      written-1) ;;
      written-*) [ "$(head -c 2 "$file" 2> /dev/null)" != "$(printf '\177E')" ] || rm -f "$file.native" ;;
      *) [ -e "$file" ] || { rm -f "$file.native"; last "$file.native"; } ;;
    esac
  done
  take "$3"
}

# last FILE: gives the last of FILE-1, FILE-2, ... the name FILE.
last() {
  number=0
  while [ -e "$1-$((number + 1))" ]; do number=$((number + 1)); done
  [ $number = 0 ] || mv "$1-$number" "$1"
}

# needs: prints what only records know: attachments that are alive, and held devices and VLANs. Nothing of this outlives a boot.
needs() {
  living=0 held=0
  for records in "$state" "$state".uninstalled-*; do
    for record in "$records"/attachments/*; do [ ! -e "$record" ] || living=$((living + 1)); done
    for record in "$records"/node/held-*; do [ ! -e "$record" ] || held=$((held + 1)); done
  done
  [ $living$held = 00 ] || echo "attachments that are alive: $living; held devices: $held"
}

# others: prints the hosts of other installations: those at the usual places, and those that plugins' files start.
others() {
  {
    printf '%s\n' /usr/local/lib/postern/postern /opt/postern/lib/postern/postern $library/postern
    for file in /opt/cni/bin/* /usr/lib/cni/* /usr/libexec/cni/*; do starts "$file"; done
  } | sort -u | while read -r host; do [ ! -e "$host" ] || echo "$host"; done | tr '\n' ' '
}

# forget DIRECTORY...: removes records, leases, and these directories. Refuses while records are needed.
forget() {
  others=$(others)
  if [ -n "$others" ]; then
    say "another installation uses the same records, log and settings, and they stay: ${others% }"
    return 0
  fi
  needs=$(needs)
  if [ -n "$needs" ]; then
    say "not purged: $needs. Only their records in $state say how to remove them."
    say "Install postern again, delete their containers, and let \`postern gc\` look at held devices; or boot the node. Then purge."
    return 1
  fi
  rm -rf "$state" "$state".uninstalled-* "$@"
  [ "$by" != deb ] || rm -rf /var/lib/postern
  # rpm has no purge, and plugins that the operator added stay.
  find /var/lib/postern -mindepth 1 -maxdepth 1 ! -name postern.d -exec rm -rf {} + 2> /dev/null || true
  rmdir --ignore-fail-on-non-empty /var/lib/postern 2> /dev/null || true
}
