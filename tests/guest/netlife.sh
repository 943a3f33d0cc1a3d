#!/bin/sh
# virtio-net's life: reset, rebind, kexec and reboot under flood; links that go and come; rings that run empty;
# ends at bad moments.  FULL=1: as often as the bug log asks for.
. tests/guest/net-lib.sh
k=backports-cloud
kernel=$(kernel $k) || { skip "network life" "no kernel (guest-images/kernels.sh $k)"; finish guest-netlife; exit; }
full=${FULL:+yes}
boots=2 flaps=5
[ -z "$full" ] || { boots=50 flaps=20; }
tap ht0 0
serve

# A flood of small frames at the guest until `calm`, as fast as this host sends.
flood() {
	ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev ht0 nud permanent
	for port in 7001 7002; do
		build/guest-tests/nettool flood 10.9.0.2 $port &
		floods="${floods-} $!"
	done
}
calm() {
	# shellcheck disable=SC2086
	kill $floods 2>/dev/null
	floods=''
}
net=tap=ht0,queues=2,ip=10.9.0.2/24,mac=02:00:00:00:00:02

# N-11: the driver lets go and takes again.
flood
run "rebind under flood" 900 -k "$kernel" -c 2 -m 512M --net $net -- tests/guest/netlife-rebind.sh "${full:+200}"
calm
count "$name"

# N-11: another kernel takes over the device at once; it looks for stray writes into its memory.
kernels=1
[ -z "$full" ] || kernels=20
version=$(cat build/kernels/$k/version)
mkdir -p "$WORK/kexec"
echo $kernels >"$WORK/kexec/left"
cp "$kernel" "$WORK/kexec/vmlinuz"
# The second kernel is told the same as the first.
build/guest-tests/initrd "$WORK/kexec/initrd" build/x86-release/agent "build/kernels/$k/lib/modules/$version" \
	root=heddle-root rootmode=overlay mount=heddle-mount0:rw:/mnt net=0,10.9.0.2/24,, \
	"cwd=$PWD" "env=PATH=$PATH" arg=tests/guest/netlife-kexec.sh hostname=heddle
flood
run "kexec under flood" 600 -k "$kernel" -c 2 -m 512M --net $net --mount "$WORK/kexec:/mnt" -- tests/guest/netlife-kexec.sh
calm
count "$name"

# N-03, N-11: a guest that boots again and again under flood.
echo 0 >"$WORK/boots"
flood
run "reboot under flood" 900 -k "$kernel" -c 2 -m 512M --reboot --net $net --mount "$WORK:/mnt" -- sh -c "
	ping -q -c 2 -i 0.05 -W 2 10.9.0.1 || exit 5
	n=\$((\$(cat /mnt/boots) + 1)); echo \$n >/mnt/boots; sync
	[ \$n -ge $boots ] && exit 6
	echo b >/proc/sysrq-trigger; sleep 60"
calm
expect "reboots under flood" 6

# N-05: the link goes and comes, also before the guest has ever used it.
ip link set ht0 down
"$H" -k "$kernel" -c 2 -m 512M --net $net -- tests/guest/netlife-link.sh >"$WORK/link.out" 2>"$WORK/link.err" </dev/null &
pid=$!
until_ok 60 grep -q up "$WORK/link.out"
for _ in $(seq $flaps); do
	ip link set ht0 up
	sleep 0.7
	ip link set ht0 down
	sleep 0.5
done
ip link set ht0 up
wait $pid
code=$?
name=link
count link

# N-06: more comes in than the ring holds while the guest does not look.
run "ring run empty" 120 -k "$kernel" -c 2 -m 512M --net "tap=ht0,queues=1,ring=64,ip=10.9.0.2/24" -- tests/guest/netlife-empty.sh "${full:+3}"
count "$name"

# N-07: nobody reads; nobody spins.
"$H" -k "$kernel" -c 2 -m 512M --net tap=ht0,queues=2 -- sh -c 'echo up; sleep 30' >"$WORK/idle.out" 2>"$WORK/idle.err" </dev/null &
pid=$!
until_ok 60 grep -q up "$WORK/idle.out" || fail "idle guest" "did not come up" "$WORK/idle.err"
sleep 1
ping -b -q -i 0.01 -w 5 10.9.0.255 >/dev/null 2>&1 &
sleep 0.5
lanes=$(grep -l '^net0-' /proc/$pid/task/*/comm | sed 's/comm$/stat/')
# shellcheck disable=SC2086
before=$(cat $lanes | awk '{ t += $14 + $15 } END { print t }')
sleep 4
# shellcheck disable=SC2086
after=$(cat $lanes | awk '{ t += $14 + $15 } END { print t }')
if [ -n "$lanes" ] && [ $((after - before)) -le 8 ]; then # of 400
	pass "a guest that does not use its network costs no CPU time"
else
	fail "a guest that does not use its network costs no CPU time" "$((after - before)) ticks in 4 s"
fi
kill -TERM $pid
wait $pid

# N-12: eight pairs, one vCPU, ended at many moments.
for delay in 0.3 1.2 3; do
	"$H" -k "$kernel" -c 1 -m 512M --net tap=ht0,queues=8,ip=10.9.0.2/24 -- sleep 60 >"$WORK/stop.out" 2>&1 </dev/null &
	pid=$!
	sleep $delay
	start=$(date +%s%N)
	kill -TERM $pid
	wait $pid
	code=$?
	ms=$((($(date +%s%N) - start) / 1000000))
	if [ $code -eq 143 ] && [ $ms -le 2000 ]; then
		pass "SIGTERM $delay s after the start ends a guest with 8 pairs"
	else
		fail "SIGTERM $delay s after the start" "exit code $code after $ms ms" "$WORK/stop.out"
	fi
done

# N-03: a tap has one user; after kill -9 it is free at once; one that heddle made is gone.
"$H" -k "$kernel" -c 1 -m 512M --net tap=ht0,queues=2 -- sleep 60 >/dev/null 2>&1 </dev/null &
pid=$!
until_ok 30 sh -c "ls /proc/$pid/task/*/comm | xargs grep -l net0-q1"
run second 20 -k "$kernel" -c 1 -m 512M --net tap=ht0,queues=2 -- true
expect "a second user of a tap is refused" 125
says "and told why" 'ht0.*(busy|use)' "$WORK/second.err"
kill -KILL $pid
wait $pid 2>/dev/null
run again 60 -k "$kernel" -c 1 -m 512M --net tap=ht0,queues=2,ip=10.9.0.2/24 -- ping -q -c 1 -W 2 10.9.0.1
expect "after kill -9 the tap works at once" 0
run made 60 -k "$kernel" -c 1 -m 512M --net tap=ht9 -- test -e /sys/class/net/eth0
expect "a tap is made when there is none" 0
if [ -e /sys/class/net/ht9 ]; then fail "a tap that heddle made is gone afterwards" "it is there"; else pass "a tap that heddle made is gone afterwards"; fi
finish guest-netlife
