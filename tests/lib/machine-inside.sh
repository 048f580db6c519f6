# Sourced by the first process of the emulated machine. Sets up file systems, kernel modules and plugins. `$modules` lists
# the kernel modules in the order of loading, and `$kinds` lists the plugins.
export PATH=/bin
/bin/busybox --install -s /bin 2> /dev/null
exec 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for directory in run tmp var/lib var/log; do mount -t tmpfs -o mode=755 tmpfs /$directory; done
mkdir -p /run/netns
for module in $modules; do
  [ ! -e /modules/$module.ko ] || insmod /modules/$module.ko
done
ip link set lo up
for plugin in $kinds; do
  /opt/plugins/postern add /opt/plugins/postern-$plugin.wasm --name $plugin --policy /opt/plugins/$plugin.toml --catalog /opt/plugins/postern.d --bin /opt/plugins
done
echo "installed after $(cut -d' ' -f1 /proc/uptime) s"
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
expect() { [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"; }
