#!/bin/busybox sh
# The first process of the guest: makes the system that scenarios expect, and starts what the host asked for.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ifconfig lo 127.0.0.1 up

# Their names begin with their place in the order of loading.
for module in /modules/*; do
    insmod "$module" || echo "init: $module cannot be loaded"
done

if grep -q rig.shell /proc/cmdline; then
    remanent-rig guest prepare
    # A shell needs a terminal of its own for Ctrl-C.
    setsid cttyhack sh
else
    remanent-rig guest serve
    echo "init: the guest's program ended with status $?"
fi
reboot -f
