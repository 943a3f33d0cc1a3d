#!/bin/sh
# In the near guest of netoff.sh: mixes of offloads, to the other guest and to the host; netoff-near.sh [FULL]
. tests/guest/net-guest.sh
ip -6 addr add fd09::2/64 dev eth0 nodad
full=${1-}

streams() { # MIX
	for host in 10.9.0.3 fd09::3 ${full:+10.9.0.1}; do
		flow "$1: TCP to $host" -n 4M -c $host
		flow "$1: TCP from $host" -n 4M -R -c $host
		flow "$1: UDP to $host" -u -b 5M -n 200K -l 4000 -c $host
	done
	check "$1: ICMP" sh -c 'ping -q -c 2 -i 0.05 -s 4000 -W 2 10.9.0.3 && ping -q -c 2 -i 0.05 -s 4000 -W 2 fd09::3'
}

for mix in "tx on tso on gso on" "tx on tso off gso on" "tx on tso off gso off" "tx off tso off gso off" "tx off tso off gso on gro off"; do
	[ -n "$full" ] || case $mix in "tx on tso off "* | *"gro off") continue ;; esac
	# shellcheck disable=SC2086
	check "$mix" ethtool -K eth0 $mix
	streams "$mix"
done
ethtool -K eth0 tx on tso on gso on gro on
# XDP wants each frame in one buffer, so the driver gives offloads back while a program runs (N-09).
cat >/tmp/xdp.sh <<'EOF'
iperf3 -n 4M -c 10.9.0.3 >/tmp/xdp 2>&1 && iperf3 -n 4M -R -c 10.9.0.3 >>/tmp/xdp 2>&1 &&
	iperf3 -n 4M -R -c fd09::3 >>/tmp/xdp 2>&1 && ping -q -c 2 -i 0.05 -s 1400 -W 2 10.9.0.3 && exit
cat /tmp/xdp
exit 1
EOF
check "an XDP program that passes all frames" build/guest-tests/nettool xdp eth0 sh /tmp/xdp.sh
flow "TCP after XDP" -n 4M -R -c 10.9.0.3
check "no frame was found bad" test "$(bad_sums)" -eq 0
check "no complaint of the kernel" no_complaint
echo end of script
