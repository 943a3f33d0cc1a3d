#!/bin/sh
# Who may include whom (CONTRIBUTING.md, "Layers").  Every #include "..." of a source is looked up here:
# a file of level N includes levels up to its own limit, and the few named pairs.  Prints offenders.
set -u
cd "$(dirname "$0")/.." || exit 2

# file (without suffix) -> level
level() {
	case $1 in
	vmm/base | vmm/compat | vmm/log | vmm/opt | vmm/iov) echo 0 ;;
	vmm/machine | vmm/run* | vmm/main | vmm/hostcheck | vmm/guest_spec | vmm/kernel_find) echo 6 ;;
	vmm/vm | vmm/vcpu) echo 4 ;;
	vmm/*) echo 1 ;;
	devices/virtq | devices/virtio | devices/pci | devices/pci_msix | devices/fuse/*) echo 2 ;;
	devices/*) echo 3 ;;
	arch/*) echo 5 ;;
	guest-images/init/channel) echo 0 ;;
	*) echo 9 ;;
	esac
}

# includer's level, included file's level, and both names: is it allowed?
allowed() {
	# One device may be several files: net.c, net_rx.c, net_internal.h.
	[ "${3%%_*}" = "${4%%_*}" ] && return 0
	case "$3>$4" in
	devices/share">"devices/fs | devices/channel*">"devices/fs | devices/fuse/fs_server">"devices/fs) return 0 ;;
	devices/*">"devices/device | devices/net*">"devices/tap*) return 0 ;;
	esac
	case $1 in
	3) [ "$2" -le 2 ] ;;                                  # devices never include each other
	4) [ "$2" -le 1 ] || [ "$2" -eq 4 ] ;;                # vm, vcpu: no devices
	5) [ "${4%%/*}" != devices ] && [ "$2" -le 5 ] ;;     # arch: no devices
	*) [ "$2" -le "$1" ] ;;
	esac
}

bad=0 seen=0
for f in vmm/*.[ch] devices/*.[ch] devices/fuse/*.[ch] arch/*/*.[ch]; do
	[ -e "$f" ] || continue
	from=${f%.*}
	fl=$(level "$from")
	for inc in $(sed -n 's/^#include "\(.*\)".*/\1/p' "$f"); do
		to=${inc%.*}
		seen=$((seen + 1))
		case $inc in
		*/*) ;;
		*) echo "$f: \"$inc\" is not written from the root"; bad=$((bad + 1)); continue ;;
		esac
		if ! allowed "$fl" "$(level "$to")" "$from" "$to"; then
			echo "$f (level $fl) may not include $inc (level $(level "$to"))"
			bad=$((bad + 1))
		fi
	done
done
for f in $(grep -lE '__(x86_64|aarch64)__' vmm/*.[ch] devices/*.[ch] devices/fuse/*.[ch] 2>/dev/null); do
	echo "$f: architecture #ifdef outside arch/"
	bad=$((bad + 1))
done
echo "layers: $((seen - bad)) passed, $bad failed"
mkdir -p build/results
echo "$((seen - bad)) $bad 0" >build/results/layers
[ "$bad" -eq 0 ]
