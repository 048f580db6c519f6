# Sourced by the scripts that run in the private node of tests/packages/in-root: attachments as a runtime makes them, and checks.
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
step() { echo "--- $*"; }

network='{"cniVersion":"1.0.0","name":"demo","type":"bridge","bridge":"cni0","isGateway":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}}'
cni() { # cni DIRECTORY VERB CONTAINER: calls the plugin in a CNI bin directory
  CNI_COMMAND=$2 CNI_CONTAINERID=$3 CNI_NETNS=/run/netns/$3 CNI_IFNAME=eth0 CNI_PATH=$1 "$1/bridge" <<< "$network"
}
add() { # add DIRECTORY CONTAINER: a container that stays
  ip netns add "$2"
  cni "$1" ADD "$2" > "/tmp/$2" || fail "ADD $2 by $1: $(cat "/tmp/$2")"
}
del() { # del DIRECTORY CONTAINER
  cni "$1" DEL "$2" > "/tmp/$2" || fail "DEL $2 by $1: $(cat "/tmp/$2")"
  ip netns del "$2"
}
works() { # works DIRECTORY: a container comes and goes
  local container=probe-$RANDOM
  add "$1" $container
  ip -n $container -o -4 addr show eth0 | grep -q 'inet 10\.88\.0\.' || fail "$1: $container has no address"
  del "$1" $container
}
ours() { # ours DIRECTORY: the plugin's file is Postern's, and an attachment works
  [ "$(head -c 2 "$1/bridge")" = '#!' ] || fail "$1/bridge is not Postern's"
  works "$1"
}
native() { # native DIRECTORY: the plugin is native, and an attachment works
  [ "$(head -c 4 "$1/bridge" | tail -c 3)" = ELF ] || fail "$1/bridge is not native"
  works "$1"
}
others() { # others PLUGIN: prints all other plugins, as --plugins takes them
  local file names=
  for file in /usr/lib/postern/postern.d/*.json; do file=${file##*/}; [ "$file" = "$1.json" ] || names="$names,${file%.json}"; done
  echo "${names#,}"
}
held=/run/postern/node/held-eth9@1.json
hold() { # hold: a device that may not be clean, as a run notes it
  mkdir -p ${held%/*}
  echo '{}' > $held
}
alive() { # alive CONTAINER: the attachment has its link, its address and its record, and CHECK agrees
  local result
  ip -n "$1" -o -4 addr show eth0 | grep -q 'inet 10\.88\.0\.' || fail "$1 has lost its address"
  result=$(cat "/tmp/$1")
  network="${network%\}},\"prevResult\":$result}" cni "${2:-/usr/lib/cni}" CHECK "$1" || fail "CHECK $1"
}
records() { find /run/postern/attachments -type f ! -name '.*' 2> /dev/null | wc -l; }
left() { # left: prints what an installation, a run or an attachment has left
  find / /run -xdev \( -path /packages -o -path /native -o -path /proc -o -path /sys -o -path /tmp \) -prune -o -name '*postern*' -print
  ip -o link | grep veth
}
# under_load COMMAND...: containers come and go while the command runs; no run may fail. Adds the runs to $load_runs.
load_runs=0
under_load() {
  local runs=0 failed=0 status=0
  ip netns add load
  "$@" > /tmp/load.said 2>&1 &
  while kill -0 $! 2> /dev/null; do
    cni /usr/lib/cni ADD load > /tmp/load.add 2>&1 || { failed=$((failed + 1)); cat /tmp/load.add; }
    cni /usr/lib/cni DEL load > /tmp/load.del 2>&1 || { failed=$((failed + 1)); cat /tmp/load.del; }
    runs=$((runs + 2))
  done
  wait $! || status=$?
  ip netns del load
  [ $status = 0 ] || { cat /tmp/load.said; fail "$*: status $status"; }
  [ $failed = 0 ] || fail "$failed of $runs runs failed during $*"
  load_runs=$((load_runs + runs))
  echo "    $runs runs during $*"
}
