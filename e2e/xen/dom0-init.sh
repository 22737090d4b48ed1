#!/bin/busybox sh
# shellcheck shell=dash
# The first process of the emulated dom0: Xen's services, then the scenario, then power off. Lines for the test begin with @@.
export PATH=/opt/gputax:/usr/lib/xen-4.17/bin:/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t tmpfs run /run
echo "@@ dom0 up"
for module in /modules/*.ko; do /bin/busybox insmod "$module" || echo "@@ failed $module"; done
/bin/busybox mount -t xenfs xenfs /proc/xen
mkdir -p /run/xen /run/xenstored /var/lib/xen /var/lib/xenstored /var/log/xen/console /run/lock /dev/pts
/bin/busybox mount -t devpts devpts /dev/pts
ln -sf /run /var/run 2>/dev/null
xenstored --pid-file /run/xenstored.pid
for _ in $(/bin/busybox seq 100); do [ -S /run/xenstored/socket ] && break; /bin/busybox sleep 0.1; done
xen-init-dom0
xenconsoled --log=guest --log-dir=/var/log/xen/console --pid-file /run/xenconsoled.pid
echo "@@ xenstored $(/bin/busybox cat /run/xenstored.pid)"
/bin/busybox sh /opt/gputax/scenario.sh
echo "@@ scenario ended $?"
/bin/busybox sync
/bin/busybox poweroff -f
