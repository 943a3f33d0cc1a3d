#!/bin/sh
# In the guest, 4 vCPUs and 4 pairs: ethtool -L under load; flows stay on their pair.
. tests/guest/net-guest.sh
ip -6 addr add fd09:0::2/64 dev eth0 nodad

# A slow stream from the host, and a socket that holds all of a second, so that what is lost was lost by us.
echo 4000000 >/proc/sys/net/core/rmem_default
iperf3 -u -b 2M -l 1000 -t 14 -R -P 4 -c 10.9.0.1 -p 5201 >/tmp/udp 2>&1 &
udp=$!
for n in 1 4 2 3 1 2 4; do
	sleep 1
	check "combined $n" ethtool -L eth0 combined $n
	check "traffic at once with $n" ping -q -c 2 -i 0.05 -W 1 10.9.0.1
done
wait $udp
if [ "$(lost /tmp/udp | sort -n | tail -n 1)" -le 20 ]; then
	ok "little of a stream is lost in 7 changes"
else
	bad "little of a stream is lost in 7 changes" /tmp/udp
fi

# With n pairs the other receivers are silent.
for n in 1 2 3; do
	ethtool -L eth0 combined $n
	sleep 0.2
	before=$(irqs "input.[$n-3]") first=$(irqs input.0)
	iperf3 -R -t 1 -P 8 -c 10.9.0.1 >/tmp/flow 2>&1 || bad "8 flows on $n pairs" /tmp/flow
	check "the others are silent with $n pairs" test "$(irqs "input.[$n-3]")" -eq "$before"
	check "pair 0 is not" test "$(irqs input.0)" -gt "$first"
done
check "no pairs are refused" sh -c '! ethtool -L eth0 combined 0'
check "5 pairs are refused" sh -c '! ethtool -L eth0 combined 5'

# A flow comes in on the pair it goes out on.
ethtool -L eth0 combined 4
for cpu in 0 1 2 3; do
	all=0
	for q in 0 1 2 3; do eval "b$q=$(irqs input.$q)"; done
	taskset -c $cpu iperf3 -t 1 -R -c 10.9.0.1 >/tmp/flow 2>&1 || bad "flow from CPU $cpu" /tmp/flow
	for q in 0 1 2 3; do
		eval "d$q=\$(($(irqs input.$q) - b$q))"
		eval "all=\$((all + d$q))"
	done
	eval "own=\$d$cpu"
	if [ $((own * 10)) -ge $((all * 7)) ] && [ "$own" -gt 20 ]; then
		ok "a flow sent from CPU $cpu comes in on pair $cpu"
	else
		bad "a flow sent from CPU $cpu comes in on pair $cpu: $d0 $d1 $d2 $d3"
	fi
done
check "no complaint of the kernel" no_complaint
echo end of script
