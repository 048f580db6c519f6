# Sourced by scripts that run a test in the emulated machine of vm/fetch-machine. The machine's only file system has programs of the
# real machine with their libraries, our plugins, the native plugins, and kernel modules. `$tree` is the workspace.
#
# machine_begin PLUGIN-DIRECTORY: sets `$plugins`, `$native`, `$machine`, `$work` and `$root`. Ends the script with status 77 if
# the emulator can't be fetched.
machine_begin() {
  local name=${0##*/}
  plugins=$(readlink -f "${1:-${POSTERN_CNI_BIN:-$tree/target/cni/bin}}") || true
  native=$(readlink -f "${POSTERN_NATIVE:-$tree/target/native}/bin") || true
  [ -x "$plugins/postern" ] || { echo "vm/$name: no postern in ${plugins:-target/cni/bin}: make build" >&2; exit 1; }
  [ -x "$native/bridge" ] || { echo "vm/$name: no native plugins: tests/fetch-native fetches them" >&2; exit 1; }
  "$tree/tests/vm/fetch-machine" || { echo "SKIPPED: no emulated machine, so no vm/$name"; exit 77; }
  machine=$(readlink -f "${POSTERN_MACHINE:-$tree/target/machine}")
  work=$(mktemp -d "${TMPDIR:-/tmp}/postern-$name.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  root=$work/root
  mkdir -p "$root"/{proc,sys,dev,run,tmp,bin,modules,var/lib,var/log,etc,opt/plugins,opt/native}
}
# machine_programs PROGRAM...: copies programs, given by name or path, and their libraries.
machine_programs() {
  local program file library
  for program in "$@"; do
    file=$(readlink -f "$(command -v "$program")")
    cp "$file" "$root/bin/${program##*/}"
    { ldd "$file" 2> /dev/null || true; } | sed -n 's/^[^/]*\(\/[^ ]*\) (.*/\1/p' | while read -r library; do
      mkdir -p "$root${library%/*}"
      cp -L "$library" "$root$library"
    done
  done
}
# machine_plugins PLUGIN...: copies components with their policies, and the native plugins. Compiled code fits only the real
# machine's CPU, so the emulated machine compiles the components itself.
machine_plugins() {
  local plugin
  cp "$plugins"/postern "$plugins"/postern-admin "$plugins"/postern-compiler "$root/opt/plugins"
  for plugin in "$@"; do
    cp "$tree/target/wasm32-wasip2/guest/postern-$plugin.wasm" "$root/opt/plugins"
    cp "$tree/guests/$plugin/policy.toml" "$root/opt/plugins/$plugin.toml"
    cp "$native/$plugin" "$root/opt/native"
  done
}
machine_modules() { # machine_modules MODULE...: copies kernel modules
  local module
  for module in "$@"; do find "$machine/modules/" -name "$module.ko" -exec cp {} "$root/modules" \; ; done
}
# machine_run INIT KERNEL-ARGUMENTS [QEMU-ARGUMENT...]: runs the script INIT as the first process, and prints its output. Succeeds if
# the output has a line with 0 failures. On a busy node, the emulator can lose the machine's timers, and the machine's kernel stops.
# Such a run says nothing about the plugins: the machine starts again, twice at most.
machine_run() {
  local init=$1 arguments=$2 name=${0##*/} run
  shift 2
  cp "$init" "$root/init"
  (cd "$root" && find . | busybox cpio -o -H newc -R 0:0 2> /dev/null | gzip -1) > "$work/initrd"
  for run in 1 2 3; do
    timeout --kill-after 5 "${VM_TIMEOUT:-480}" "$tree/tests/vm/machine" -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 \
      -nodefaults -no-user-config -display none -no-reboot -serial "file:$work/said" -kernel "$machine/vmlinuz" -initrd "$work/initrd" \
      -append "console=ttyS0 quiet panic=-1 reboot=k mitigations=off no_timer_check softlockup_panic=1 $arguments" \
      "$@" < /dev/null || true
    sed 's/\r$//' "$work/said"
    grep -q "^vm/$name: 0 failures" "$work/said" && return 0
    grep -q 'Kernel panic - not syncing: \(softlockup\|IO-APIC\)' "$work/said" || return 1
    [ $run = 3 ] || echo "vm/$name: the emulated machine's kernel stopped; it starts again"
  done
  return 1
}
