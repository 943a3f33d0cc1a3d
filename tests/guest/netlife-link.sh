#!/bin/sh
# In the guest of netlife.sh, whose host takes the link down and up.
. tests/guest/net-guest.sh
echo up
ping -q -f -w 6 10.9.0.1 >/tmp/flood 2>&1 &
iperf3 -u -b 5M -t 6 -c 10.9.0.1 >/dev/null 2>&1 &
sleep 8
check "frames pass when the link is up" ping -q -c 3 -i 0.1 -W 2 10.9.0.1
check "some passed meanwhile" grep -q ' [1-9][0-9]* received' /tmp/flood
check "the guest saw the link come and go" sh -c 'test $(cat /sys/class/net/eth0/carrier_changes) -ge 6'
check "no complaint of the kernel" no_complaint
echo end of script
