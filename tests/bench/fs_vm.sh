#!/bin/sh
# make bench-fs-guest: virtio-fs of heddle, and of QEMU with virtiofsd (the C one of Debian 12), with the same
# guest (guest-images/bench/fsbench.c), the same kernel, directory and host.  Guests need a KVM that runs stock
# kernels: this machine's, or the test host's.
#
# virtiofsd serves one request queue, whatever the device offers; it is run without and with a pool of threads,
# and each figure is compared with the better of the two.  Guests of one row have the same number of vCPUs.
# usage: fs_vm.sh [--here HOST]     from the environment:
#	RUNS (default 5), MS (of a case that runs for a time, default 1000), FILES (of the tree, default 4000)
#	MIB (of each job's file, default 16)
#	VARIANTS (default all: heddle-QUEUES-VCPUS, pool0-1-VCPUS, pool64-1-VCPUS)
set -eu
cd "$(dirname "$0")/../.."
runs=${RUNS:-5}
ms=${MS:-1000}
files=${FILES:-4000}
mib=${MIB:-16}
variants=${VARIANTS:-heddle-1-2 pool0-1-2 heddle-2-2 pool64-1-2 heddle-4-4 pool0-1-4 pool64-1-4}
k=${KERNEL:-backports-cloud}
virtiofsd=${VIRTIOFSD:-/usr/lib/qemu/virtiofsd}
bench=$PWD/build/bench
kernel=$(echo build/kernels/"$k"/boot/vmlinuz-*)

make_initrd() {
	version=$(cat "build/kernels/$k/version")
	t=$bench/fs-initrd
	rm -rf "$t"
	mkdir -p "$t/modules" "$t/dev"
	cp "$bench/fsbench" "$t/init"
	n=100
	modprobe -d "build/kernels/$k" -S "$version" --show-depends -a virtio_pci virtiofs |
		sed -n 's/^insmod \(.*[^ ]\) *$/\1/p' | awk '!seen[$0]++' | while read -r ko; do
		name=${ko##*/}
		case $ko in
		*.xz) xz -dc "$ko" ;;
		*) cat "$ko" ;;
		esac >"$t/modules/$n-${name%%.*}.ko"
		n=$((n + 1))
	done
	(cd "$t" && find . | cpio --quiet -o -H newc) >"$bench/fs-initrd.cpio"
	rm -rf "$t"
}

if [ "${1-}" != --here ]; then
	make_initrd
	if build/heddle check >/dev/null; then
		exec "$0" --here 'this machine'
	fi
	echo "this machine's KVM runs no stock kernels (build/heddle check): measured in the test host"
	exec tests/testbed/testbed run -n -- env RUNS="$runs" MS="$ms" FILES="$files" MIB="$mib" VARIANTS="$variants" \
		KERNEL="$k" "$0" --here 'the emulated test host'
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/heddle-bench.XXXXXX")
daemon=
trap 'kill ${daemon:+$daemon} 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
[ -x "$virtiofsd" ] || {
	echo "bench-fs-guest: no $virtiofsd here" >&2
	exit 1
}
cp "$kernel" "$work/vmlinuz"
cp "$bench/fs-initrd.cpio" "$work/initrd"
cp "$bench/heddle" "$work/"
mkdir "$work/share"
line="console=ttyS0 quiet panic=-1 mitigations=off norandmaps nokaslr ms=$ms files=$files mib=$mib"

heddle_guest() { # QUEUES VCPUS
	timeout 600 "$work/heddle" run -k "$work/vmlinuz" --initrd "$work/initrd" -c "$2" -m 512M --append "$line" \
		--fs "tag=share,path=$work/share,queues=$1" </dev/null
}

qemu_guest() { # POOL VCPUS
	rm -f "$work/sock"
	"$virtiofsd" --socket-path="$work/sock" --rlimit-nofile=0 --thread-pool-size="$1" \
		-o "source=$work/share,cache=auto,log_level=warn" >"$work/virtiofsd.log" 2>&1 </dev/null &
	daemon=$!
	i=0
	while [ ! -S "$work/sock" ] && [ $i -lt 200 ]; do
		sleep 0.05
		i=$((i + 1))
	done
	timeout 600 qemu-system-x86_64 -M q35,accel=kvm -cpu host -smp "$2" -m 512 -nodefaults -no-user-config \
		-object memory-backend-memfd,id=mem,size=512M,share=on -numa node,memdev=mem \
		-display none -no-reboot -serial stdio -kernel "$work/vmlinuz" -initrd "$work/initrd" -append "$line" \
		-chardev "socket,id=fs,path=$work/sock" \
		-device vhost-user-fs-pci,chardev=fs,tag=share,queue-size=1024 </dev/null
	wait "$daemon" || :
	daemon=
}

guest() { # VARIANT: the guest's console on standard output
	queues=${1#*-}
	vcpus=${queues#*-}
	queues=${queues%-*}
	case $1 in
	heddle-*) heddle_guest "$queues" "$vcpus" ;;
	pool*) pool=${1#pool} && qemu_guest "${pool%%-*}" "$vcpus" ;;
	esac
}

: >"$work/results"
run=1
while [ "$run" -le "$runs" ]; do
	for variant in $variants; do
		rm -rf "$work/share"
		mkdir "$work/share"
		guest "$variant" 2>"$work/err" | tr -d '\r' >"$work/out" || :
		if ! grep -q '^end of cases' "$work/out"; then
			echo "bench-fs-guest: the guest of $variant did not come to its end" >&2
			tail -n 5 "$work/out" "$work/err" >&2
			# The other setting of virtiofsd is left to compare with.
			case $variant in pool64*) ;; *) exit 1 ;; esac
		fi
		sed -n "s/^case /$(echo "$variant" | tr - ' ') /p" "$work/out" >>"$work/results"
	done
	echo "bench-fs-guest: run $run of $runs done" >&2
	run=$((run + 1))
	cp "$work/results" "$bench/fs-guest.txt"
done
"$bench/fs-vm" "$bench" "$2" <"$work/results"
