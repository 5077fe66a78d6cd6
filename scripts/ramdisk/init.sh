#!/bin/busybox sh
# The first and only program of a ramdisk: drivers, network, then bcd. Everything it knows comes from the kernel's command line.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /run /tmp /root /var/lib/better-compute
mount -t tmpfs -o mode=0700 tmpfs /var/lib/better-compute
echo "ramdisk: $(cat /etc/ramdisk-version)"

while read -r module; do insmod "/lib/modules/$module" 2>/dev/null; done < /etc/modules-in-order

ip link set lo up
tries=0
while [ $tries -lt 60 ]; do
  for nic in /sys/class/net/*; do
    nic=${nic##*/}
    [ "$nic" = lo ] && continue
    ip link set "$nic" up
    udhcpc -q -n -t 3 -T 2 -i "$nic" -s /etc/udhcpc.script && break 2
  done
  tries=$((tries + 1))
  echo "ramdisk: no address yet ($tries)"
done

export BETTER_COMPUTE_LOG_LEVEL=${BETTER_COMPUTE_LOG_LEVEL:-info}
while true; do
  /usr/bin/node --max-old-space-size=256 /usr/lib/bcd.mjs ramdisk
  status=$?
  echo "ramdisk: bcd ended with status $status"
  # Never the local disk by itself: the run decides, and a person may look at the console meanwhile.
  sleep 10
done
