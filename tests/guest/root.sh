#!/bin/sh
# The guest's root: overlay, ro, rw, other trees, mounts; real work; queues; INTx.
. tests/guest/lib.sh
k=backports-cloud
kernel=$(kernel $k) || { skip root "no kernel (guest-images/kernels.sh $k)"; finish guest-root; exit; }
base="-k $kernel -c 2 -m 1G"

mkdir "$WORK/share"
echo host >"$WORK/share/file"
# shellcheck disable=SC2086
run overlay 120 $base --mount "$WORK/share:/mnt/here" -- sh -c '
	echo guest >/etc/hostname && touch /heddle-was-here && rm /etc/passwd &&
	cat /mnt/here/file && echo new >/mnt/here/new'
expect "overlay root: writes succeed in the guest" 0
if [ ! -e /heddle-was-here ] && [ -s /etc/passwd ]; then
	pass "overlay root: nothing changes on the host"
else
	fail "overlay root" "the host was changed"
fi
says "a mount shows the host's file" host "$WORK/overlay.out"
says "a mount takes new files" new "$WORK/share/new"

# A tree without modules, made by guest-images/rootfs.sh.
tree=$PWD/build/testbed/rootfs
if [ -d "$tree/bin" ] || [ -L "$tree/bin" ]; then
	for k2 in $KERNELS; do
		kernel2=$(kernel "$k2") || continue
		run "tree-$k2" 120 -k "$kernel2" -c 2 -m 1G --root "$tree" -- sh -c 'ls /lib/modules; cat /etc/debian_version'
		expect "$k2: a root without kernel modules in it" 0
	done
	# shellcheck disable=SC2086
	run rw 120 $base --root "$tree,rw" -- sh -c 'echo kept >/root/heddle-kept && sync'
	says "rw root: changes stay" kept "$tree/root/heddle-kept"
	rm -f "$tree/root/heddle-kept"
	# shellcheck disable=SC2086
	run ro 120 $base --root "$tree,ro" -- sh -c 'touch /x; touch /tmp/y && echo tmp works'
	says "ro root: changes are refused" 'Read-only file system' "$WORK/ro.err"
	says "ro root: /tmp can be written" 'tmp works' "$WORK/ro.out"
	# shellcheck disable=SC2086
	run build 400 $base --root "$tree" --mount "$PWD:/src,ro" --cwd /src -- \
		make -s B=/tmp/b /tmp/b/agent
	expect "gcc and make build heddle's own agent in the guest" 0
else
	skip "other roots" "no tree at $tree (guest-images/rootfs.sh)"
fi

# Requests spread over all queues, each with its own interrupt (Linux 6.10 and later).
# shellcheck disable=SC2086
"$H" -k "$kernel" -c 4 -m 1G -- sh -c '
	for cpu in 0 1 2 3; do
		taskset -c $cpu find /usr/share -type f -size -64k 2>/dev/null | head -n 150 | taskset -c $cpu xargs cat >/dev/null &
	done
	wait
	grep virtio /proc/interrupts
	echo now; sleep 20' >"$WORK/queues.out" 2>"$WORK/queues.err" </dev/null &
pid=$!
for _ in $(seq 300); do
	grep -q ^now "$WORK/queues.out" && break
	sleep 0.2
done
kill -USR1 $pid
sleep 1
kill -TERM $pid
wait $pid
busy=$(grep '"fs0"' "$WORK/queues.err" | grep -oE '"name":"fs0-rq[0-9]+","kicks":[0-9]+,"requests":[1-9][0-9]+' | wc -l)
if [ "$busy" -eq 4 ]; then
	pass "requests spread over all 4 queues"
else
	fail "requests spread over all 4 queues" "$busy queues were busy" "$WORK/queues.err"
fi
vectors=$(awk '/virtio0-requests/ { for (i = 2; i <= 5; i++) n += $i > 0 } END { print n }' "$WORK/queues.out")
if [ "${vectors:-0}" -ge 4 ]; then
	pass "each queue has its own interrupt vector"
else
	fail "each queue has its own interrupt vector" "${vectors:-0} were used" "$WORK/queues.out"
fi

for k2 in $KERNELS; do
	case $k2 in *-cloud) ;; *) continue ;; esac
	kernel2=$(kernel "$k2") || continue
	run "nomsi-$k2" 120 -k "$kernel2" -c 2 -m 1G --append pci=nomsi -- sh -c 'cat /proc/interrupts; find /etc | wc -l'
	expect "$k2: pci=nomsi works" 0
	says "$k2: pci=nomsi uses INTx" 'IO-APIC.*virtio' "$WORK/nomsi-$k2.out"
done

# 3 resets in place, one of them a panic, then an orderly end: all processors come back each time.
# shellcheck disable=SC2086
run reboot 300 $base --reboot --mount "$WORK/share:/mnt/here" -- sh -c '
	echo boot >>/mnt/here/boots
	case $(wc -l </mnt/here/boots) in
	2) echo c >/proc/sysrq-trigger ;;
	4) nproc; sleep 1; exit 6 ;;
	*) echo b >/proc/sysrq-trigger ;;
	esac
	sleep 60'
expect "--reboot boots the guest again, also after a panic" 6
says "--reboot: every processor is there after a reset" '^2$' "$WORK/reboot.out"
finish guest-root
