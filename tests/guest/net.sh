#!/bin/sh
# virtio-net with stock kernels: traffic of all kinds on 1 to 4 pairs, pairs changed under load, big frames.
# FULL=1: every combination of pairs and vCPUs, each kernel with the other MTU.
. tests/guest/net-lib.sh
tap ht0 0
serve

# A row: kernel vCPUs pairs MTU more-of---net
traffic() {
	kernel=$(kernel "$1") || { skip "traffic on $1" "no kernel (guest-images/kernels.sh $1)"; return; }
	ip link set ht0 mtu "$4"
	run "$1 $2 vCPUs $3 pairs MTU $4$5" 200 -k "$kernel" -c "$2" -m 512M \
		--net "tap=ht0,queues=$3,mtu=$4,ip=10.9.0.2/24,gw=10.9.0.1$5" -- \
		tests/guest/net-traffic.sh "$3" "$4" "${FULL-}"
	count "$name"
}

if [ -n "${FULL-}" ]; then
	mtu=1500
	for cpus in 1 2 4; do
		for pairs in 1 2 4; do
			traffic bookworm-cloud $cpus $pairs $mtu ''
			mtu=$((10500 - mtu))
			traffic backports-cloud $cpus $pairs $mtu ''
		done
	done
fi
if [ -n "${FULL-}" ]; then
	traffic bookworm-cloud 1 4 9000 ,split
	traffic backports-cloud 2 2 1500 ,iothreads=1,offload=-mrg,ring=1024
else
	traffic bookworm-cloud 2 2 1500 ''
	traffic backports-cloud 1 4 9000 ,split
fi
ip link set ht0 mtu 1500

for k in ${FULL:+bookworm-cloud} backports-cloud; do
	kernel=$(kernel $k) || { skip "$k pairs" "no kernel (guest-images/kernels.sh $k)"; continue; }
	run "$k pairs changed under load" 200 -k "$kernel" -c 4 -m 512M \
		--net "tap=ht0,queues=4,ip=10.9.0.2/24" -- tests/guest/net-pairs.sh
	count "$name"
done
finish guest-net
