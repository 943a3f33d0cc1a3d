#!/bin/sh
# In the guest: net-traffic.sh PAIRS MTU [FULL]
. tests/guest/net-guest.sh
ip -6 addr add fd09:0::2/64 dev eth0 nodad
check "MTU is $2" grep -qx "$2" /sys/class/net/eth0/mtu
check "$1 pairs" sh -c "ethtool -l eth0 | grep -c 'Combined:.*$1\$' | grep -qx 2 || [ $1 -gt $(nproc) ]"
for host in 10.9.0.1 fd09:0::1; do
	if [ -n "${3-}" ] || [ $host = 10.9.0.1 ]; then
		flow "TCP to $host" -t 1 -P 2 -c $host
		flow "TCP from $host" -t 1 -P 2 -R -c $host
		flow "UDP to $host" -t 1 -u -b 5M -P 2 -c $host
	fi
	flow "TCP both ways with $host" -t 1 --bidir -c $host
	flow "UDP from $host" -t 1 -u -b 5M -P 2 -R -c $host
	check "largest packet to $host" ping -q -M do -s $(($2 - 48)) -c 3 -i 0.1 -W 2 $host
done
# Each answer has the bytes that were sent.
for size in 16 17 18 46 47 1000 $(($2 - 29)) $(($2 - 28)) $(($2 - 27)) 9000 30000 65000; do
	check "$size bytes come back as they were" sh -c "ping -s $size -c 2 -i 0.05 -W 2 -p a5c3 10.9.0.1 >/tmp/ping && ! grep wrong /tmp/ping"
done
check "1000 requests one at a time, none lost" sh -c "ping -q -f -c 1000 -W 2 10.9.0.1 | grep ' 0% packet loss'"
tc -s qdisc show dev eth0 | awk '/requeues/ { print "requeues", $NF } ' | sort | uniq -c
check "no frame was found bad" test "$(bad_sums)" -eq 0
check "no complaint of the kernel" no_complaint
echo end of script
