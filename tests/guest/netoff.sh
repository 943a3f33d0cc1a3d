#!/bin/sh
# virtio-net, checksums and segmentation: two guests on a bridge, one of which sees every checksum for itself,
# while the other goes through all mixes of offloads; DHCP from the host.
. tests/guest/net-lib.sh
k=backports-cloud
kernel=$(kernel $k) || { skip offloads "no kernel (guest-images/kernels.sh $k)"; finish guest-netoff; exit; }

ip link add br0 type bridge
ip addr add 10.9.0.1/24 dev br0
ip addr add fd09::1/64 dev br0 nodad
for t in ht0 ht1; do
	ip tuntap add dev $t mode tap multi_queue vnet_hdr
	ip link set $t master br0 up
done
ip link set br0 up
serve

# The far side takes no offload, so what the near side left undone the host must have done.
far() {
	"$H" -k "$kernel" -c 2 -m 512M --net tap=ht1,offload=none,ip=10.9.0.3/24 \
		-- tests/guest/netoff-far.sh >"$WORK/far.out" 2>"$WORK/far.err" </dev/null &
	far=$!
	until_ok 120 grep -q ready "$WORK/far.out" || fail "far guest" "did not come up" "$WORK/far.err"
}

far
for k2 in ${FULL:+bookworm-cloud} backports-cloud; do
	kernel2=$(kernel $k2) || { skip "$k2 offloads" "no kernel (guest-images/kernels.sh $k2)"; continue; }
	run "$k2 offloads" 900 -k "$kernel2" -c 2 -m 512M --net tap=ht0,ip=10.9.0.2/24 -- tests/guest/netoff-near.sh "${FULL-}"
	count "$name"
done
kill -TERM $far
wait $far
says "far guest: no frame was found bad" '^bad sums 0$' "$WORK/far.out"

# An address from a server of the host: its UDP checksum has to be complete for what reads packets itself.
dnsmasq --no-daemon --port=0 --interface=br0 --bind-interfaces --dhcp-range=10.9.0.100,10.9.0.200 --no-ping \
	--leasefile-ro --user=root >"$WORK/dnsmasq.log" 2>&1 &
dns=$!
for o in all none; do
	run "DHCP with offload=$o" 120 -k "$kernel" -c 1 -m 512M --net tap=ht0,offload=$o -- sh -c '
		ip link set eth0 up
		busybox udhcpc -i eth0 -n -q -f -t 10 -T 1 -s /bin/true 2>&1'
	if [ "$code" -eq 0 ] && grep -q 'lease of 10.9.0' "$WORK/$name.out"; then
		pass "$name"
	else
		fail "$name" "no lease" "$WORK/$name.out"
	fi
done
kill $dns
finish guest-netoff
