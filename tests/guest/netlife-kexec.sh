#!/bin/sh
# In the guest of netlife.sh, /mnt shared with the host: looks for stray writes, then boots the next kernel.
. tests/guest/net-guest.sh
left=$(cat /mnt/left)
check "network with $left kernels to come" ping -q -c 3 -i 0.1 -W 2 10.9.0.1
check "no stray write into memory with $left kernels to come" build/guest-tests/nettool stray 128 3
if [ "$left" -eq 0 ]; then
	echo end of script
	exit 0
fi
echo $((left - 1)) >/mnt/left
sync
if kexec -l /mnt/vmlinuz --initrd=/mnt/initrd --command-line="$(cat /proc/cmdline)"; then
	kexec -e
fi
bad "kexec"
