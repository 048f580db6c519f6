# Functions of the packages' scripts (packages/scripts/functions.sh). A package only brings a bundle; its scripts call the product's
# own install. So no package manager deletes the files of a version that runs still use.
bundle=/usr/lib/postern/bundle/@VERSION@
by=@BY@
state=/run/postern
say() { echo "postern: $*" >&2; }

# place DIRECTORY [--divert]: installs the bundle; the plugins' files come into a CNI bin directory. With --divert, another package
# that brings a file of the same name puts the file beside ours, as NAME.native.
place() {
  "$bundle/postern-admin" install --from "$bundle" --prefix /usr --by "$by" --bin-dir "$1" ${2:+"$2"}
}

# take_back [DIRECTORY]: removes the plugins' files from a CNI bin directory with their diversions, and puts the native plugins back;
# without a directory, removes the whole installation.
take_back() {
  "$bundle/postern-admin" uninstall --yes --prefix /usr ${1:+--bin-dir "$1"}
}

# replaced OURS THEIRS DIRECTORY, for rpm: another package changed its files in a CNI bin directory. OURS and THEIRS are the numbers of
# installed packages. The last native package takes its files with it, also those that were kept as NAME.native.
replaced() {
  [ "$1" != 0 ] || return 0
  if [ "$2" = 0 ]; then
    for plugin in "$bundle"/postern.d/*.json; do
      plugin=${plugin##*/}
      rm -f "$3/${plugin%.json}.native"
    done
  fi
  place "$3"
}

# installed: true if an installation of this package is there. An optional package may be removed after the base.
installed() { [ -x "$bundle/postern-admin" ] && [ -e /usr/lib/postern/current ]; }

# living: prints the number of attachments that have records. Records do not outlive a boot, and neither do attachments.
living() {
  count=0
  for record in "$state"/attachments/* "$state".uninstalled-*/attachments/*; do [ ! -e "$record" ] || count=$((count + 1)); done
  echo $count
}

# other_installation: true if `make install` or an archive made an installation that uses the same records.
other_installation() { [ -e /usr/local/lib/postern/current ]; }

# kept: says what a removal keeps, and how to end living attachments. An uninstall may have set their records aside: the records get
# their place back, so that a later installation knows the attachments again.
kept() {
  [ -e "$state" ] || [ ! -e "$state.uninstalled-1" ] || mv "$state.uninstalled-1" "$state"
  count=$(living)
  if [ "$count" != 0 ]; then
    say "attachments that are alive: $count. Their records stay in $state, and the audit log stays in /var/log/postern."
    say "To end them: install postern again and delete their containers; \`postern gc\` removes what deleted containers left."
  fi
}

# forget: removes records, index of leases, log and configuration. Refuses while attachments are alive.
forget() {
  count=$(living)
  if other_installation; then
    say "/usr/local/lib/postern is another installation, which uses the same records, log and settings: they stay"
    return 0
  fi
  if [ "$count" != 0 ]; then
    say "not purged: attachments that are alive: $count. Only their records in $state say how to remove them."
    say "Install postern again and delete their containers, or boot the node; then purge."
    return 1
  fi
  rm -rf "$state" "$state".uninstalled-* /var/lib/postern /var/log/postern /etc/postern /usr/lib/postern
}
