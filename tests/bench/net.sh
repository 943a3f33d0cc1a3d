#!/bin/sh
# make bench-net: virtio-net of heddle, of QEMU in user space, and of vhost-net under QEMU, with the same guest
# (guest-images/bench/netbench.c), the same kernel, tap and host.  Guests need a KVM that runs stock kernels:
# this machine's, or the test host's.
# usage: net.sh [--here HOST]     RUNS (default 5), SECONDS_EACH (default 1) from the environment
set -eu
cd "$(dirname "$0")/../.."
runs=${RUNS:-5}
each=${SECONDS_EACH:-1}
k=${KERNEL:-backports-cloud}
bench=$PWD/build/bench
kernel=$(echo build/kernels/"$k"/boot/vmlinuz-*)

make_initrd() {
	version=$(cat "build/kernels/$k/version")
	t=$bench/net-initrd
	rm -rf "$t"
	mkdir -p "$t/modules" "$t/dev"
	cp "$bench/netbench" "$t/init"
	n=100
	modprobe -d "build/kernels/$k" -S "$version" --show-depends -a virtio_pci virtio_net |
		sed -n 's/^insmod \(.*[^ ]\) *$/\1/p' | awk '!seen[$0]++' | while read -r ko; do
		name=${ko##*/}
		case $ko in
		*.xz) xz -dc "$ko" ;;
		*) cat "$ko" ;;
		esac >"$t/modules/$n-${name%%.*}.ko"
		n=$((n + 1))
	done
	(cd "$t" && find . | cpio --quiet -o -H newc) >"$bench/net-initrd.cpio"
	rm -rf "$t"
}

if [ "${1-}" != --here ]; then
	make_initrd
	if build/heddle check >/dev/null; then
		exec "$0" --here 'this machine'
	fi
	echo "this machine's KVM runs no stock kernels (build/heddle check): measured in the test host"
	exec tests/testbed/testbed run -n -- env RUNS="$runs" SECONDS_EACH="$each" KERNEL="$k" "$0" --here 'the emulated test host'
fi
[ -n "${HEDDLE_BENCH_NETNS-}" ] || exec unshare -n env HEDDLE_BENCH_NETNS=1 "$0" "$@"
ip link set lo up
work=$(mktemp -d "${TMPDIR:-/tmp}/heddle-bench.XXXXXX")
server=
trap 'kill ${server:+$server} 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cp "$kernel" "$work/vmlinuz"
cp "$bench/net-initrd.cpio" "$work/initrd"
cp "$bench/heddle" "$bench/netbench" "$work/"
"$work/netbench" serve 5401 &
server=$!

guest() { # VARIANT PAIRS: the guest's console on standard output
	multi=
	[ "$2" -eq 1 ] || multi=multi_queue
	# shellcheck disable=SC2086
	ip tuntap add dev bt0 mode tap vnet_hdr $multi
	ip addr add 10.9.0.1/24 dev bt0
	ip link set bt0 up
	line="console=ttyS0 quiet panic=-1 mitigations=off norandmaps nokaslr pairs=$2 seconds=$each"
	case $1 in
	heddle)
		timeout 300 "$work/heddle" run -k "$work/vmlinuz" --initrd "$work/initrd" -c 2 -m 512M --append "$line" \
			--net "tap=bt0,queues=$2" </dev/null
		;;
	*)
		vhost=off
		[ "$1" = qemu ] || vhost=on
		mq=
		[ "$2" -eq 1 ] || mq=",mq=on,vectors=$((2 * $2 + 2))"
		timeout 300 qemu-system-x86_64 -M q35,accel=kvm -cpu host -smp 2 -m 512 -nodefaults -no-user-config \
			-display none -no-reboot -serial stdio -kernel "$work/vmlinuz" -initrd "$work/initrd" -append "$line" \
			-netdev "tap,id=n,ifname=bt0,script=no,downscript=no,queues=$2,vhost=$vhost" \
			-device "virtio-net-pci,netdev=n,romfile=$mq" </dev/null
		;;
	esac
	ip link del bt0
}

: >"$work/results"
run=1
while [ "$run" -le "$runs" ]; do
	for pairs in 1 2; do
		for variant in heddle qemu vhost; do
			guest $variant $pairs 2>"$work/err" | tr -d '\r' >"$work/out" || :
			if ! grep -q '^end of cases' "$work/out"; then
				echo "bench-net: the guest of $variant with $pairs pairs did not come to its end" >&2
				tail -n 5 "$work/out" "$work/err" >&2
				exit 1
			fi
			sed -n "s/^case /$variant $pairs /p" "$work/out" >>"$work/results"
		done
	done
	echo "bench-net: run $run of $runs done" >&2
	run=$((run + 1))
done
cp "$work/results" "$bench/net.txt"
"$bench/net" "$bench" "$2" <"$work/results"
