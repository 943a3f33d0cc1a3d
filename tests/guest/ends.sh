#!/bin/sh
# Every way a run can end, with its documented exit code, within 2 s of the event, nothing left behind.
. tests/guest/lib.sh

now_ms() {
	echo $(($(date +%s%N) / 1000000))
}

# event NAME CODE COMMAND...: the command prints "now" right before the event.
event() {
	name=$1 want=$2
	shift 2
	mkfifo "$WORK/pipe"
	timeout -s KILL 120 "$H" -k "$kernel" -c 2 -m 512 "$@" \
		>"$WORK/pipe" 2>"$WORK/$name.err" </dev/null &
	pid=$!
	grep -q now <"$WORK/pipe"
	start=$(now_ms)
	[ -n "${SIGNAL:-}" ] && kill "-$SIGNAL" $(pgrep -P $pid heddle || echo $pid)
	wait $pid
	code=$?
	took=$(($(now_ms) - start))
	rm "$WORK/pipe"
	expect "$k: $name ends with $want" "$want"
	if [ $took -le 2000 ]; then
		pass "$k: $name ends within 2 s ($took ms)"
	else
		fail "$k: $name ends within 2 s" "took $took ms"
	fi
}

for k in $KERNELS; do
	case $k in *-cloud) ;; *) continue ;; esac
	kernel=$(kernel "$k") || { skip "ends-$k" "no kernel (guest-images/kernels.sh $k)"; continue; }
	SIGNAL=
	event poweroff 122 -- sh -c 'echo now; echo o >/proc/sysrq-trigger; sleep 60'
	event reboot 122 -- sh -c 'echo now; echo b >/proc/sysrq-trigger; sleep 60'
	event panic 123 -- sh -c 'echo now; echo c >/proc/sysrq-trigger; sleep 60'
	says "$k: a panic shows the kernel's last lines" 'console: .*Kernel panic' "$WORK/panic.err"
	SIGNAL=TERM
	event sigterm 143 -- sh -c 'echo now; sleep 60'
	event "sigterm, ignored by the command" 143 -- sh -c 'trap "" TERM; echo now; sleep 60'
	SIGNAL=INT
	event sigint 5 -- sh -c 'trap "exit 5" INT; echo now; while :; do sleep 0.1; done'
	SIGNAL=
	run killinit 120 -k "$kernel" -c 1 -m 512 -- sh -c 'kill -9 1; echo alive; kill -9 $$'
	expect "$k: a command killed by a signal gives 128+n" 137
	says "$k: process 1 cannot be killed" alive "$WORK/killinit.out"
	run timeout 120 -k "$kernel" -c 1 -m 512 --timeout 40 -- sleep 1000
	expect "$k: --timeout gives 124" 124
done

k=backports-cloud
if kernel=$(kernel $k); then
	run notfound 120 -k "$kernel" -c 1 -m 512 -- no-such-command
	expect "command not found gives 127" 127
	run noexec 120 -k "$kernel" -c 1 -m 512 -- /etc/passwd
	expect "command not executable gives 126" 126
	run panic0 120 -k "$kernel" -c 1 -m 512 --append panic=0 -- sh -c 'echo c >/proc/sysrq-trigger; sleep 60'
	expect "a panic that does not reboot gives 123 all the same" 123
	run initfail 120 -k "$kernel" -c 1 -m 512 --init /bin/false --console none
	expect "an init that ends panics the kernel: 123" 123
	if pgrep -s 0 -x heddle >/dev/null; then
		fail "no process is left" "$(pgrep -s 0 -ax heddle)"
	else
		pass "no process is left"
	fi
else
	skip "ends" "no kernel (guest-images/kernels.sh $k)"
fi
finish guest-ends
