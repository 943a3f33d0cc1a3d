#!/bin/sh
# Every way a run can end, with its documented exit code, within 2 s of the event, nothing left behind.
. tests/guest/lib.sh

now_ms() {
	echo $(($(date +%s%N) / 1000000))
}

# event NAME CODE ARGUMENT...: the guest prints "now", or what READY says, right before the event.
event() {
	name=$1 want=$2
	shift 2
	mkfifo "$WORK/pipe"
	timeout -s KILL 120 "$H" -k "$kernel" -c 2 -m 512 "$@" \
		>"$WORK/pipe" 2>"$WORK/$name.err" </dev/null &
	pid=$!
	grep -q "${READY:-now}" <"$WORK/pipe"
	start=$(now_ms)
	[ -n "${SIGNAL:-}" ] && kill "-$SIGNAL" $(pgrep -P $pid heddle || echo $pid)
	wait $pid
	code=$?
	took=$(($(now_ms) - start))
	rm "$WORK/pipe"
	expect "$k: $name ends with $want" "$want"
	if [ $took -le "${LIMIT:-2000}" ]; then
		pass "$k: $name ends within ${LIMIT:-2000} ms ($took ms)"
	else
		fail "$k: $name ends within ${LIMIT:-2000} ms" "took $took ms"
	fi
}

for k in $KERNELS; do
	case $k in *-cloud) ;; *) continue ;; esac
	kernel=$(kernel "$k") || { skip "ends-$k" "no kernel (guest-images/kernels.sh $k)"; continue; }
	SIGNAL=
	event poweroff 122 -- sh -c 'echo now; echo o >/proc/sysrq-trigger; sleep 60'
	event reboot 122 -- sh -c 'echo now; echo b >/proc/sysrq-trigger; sleep 60'
	event panic 123 -- sh -c 'echo now; echo c >/proc/sysrq-trigger; sleep 60'
	says "$k: a panic says why" 'heddle: the guest died: Kernel panic.* sysrq' "$WORK/panic.err"
	says "$k: a panic shows the kernel's last lines" 'console: .*RIP: ' "$WORK/panic.err"
	SIGNAL=TERM
	event sigterm 143 -- sh -c 'echo now; sleep 60'
	event "sigterm, ignored by the command" 143 -- sh -c 'trap "" TERM; echo now; sleep 60'
	event "sigterm, while the console says halted" 143 -- sh -c '
		trap "" TERM; echo now; while :; do echo "reboot: System halted" >/dev/console; done'
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
	run words 120 -k "$kernel" -c 1 -m 512 -- sh -c '
		printf "reboot: System halted\n---[ end Kernel panic - not syncing: no ]---\nalive" >/dev/console
		sleep 2; exit 9'
	expect "a guest that only prints a dead kernel's words lives on" 9
	run nofs 120 -k "$kernel" -c 1 -m 512 --append initcall_blacklist=virtio_fs_init -- true
	expect "a kernel that cannot mount virtio-fs gives 125" 125
	says "and heddle says so" 'did not mount virtio-fs' "$WORK/nofs.err"
	run nocwd 120 -k "$kernel" -c 1 -m 512 --cwd /no/such/folder -- true
	expect "a --cwd that is not there gives 125" 125
	says "and heddle says so" 'cwd /no/such/folder: No such' "$WORK/nocwd.err"
	run initfail 120 -k "$kernel" -c 1 -m 512 --init /bin/false --console none
	expect "an init that ends panics the kernel: 123" 123
	# An init that knows the power button.
	cat >"$WORK/init" <<-'EOF'
		#!/bin/sh
		modprobe -a button evdev
		exec 3</dev/input/event0
		echo init-is-ready
		head -c 24 <&3 >/dev/null
		echo o >/proc/sysrq-trigger
		sleep 60
	EOF
	printf '#!/bin/sh\necho init-is-ready\nexec sleep 1000\n' >"$WORK/deaf"
	chmod +x "$WORK/init" "$WORK/deaf"
	SIGNAL=TERM READY=init-is-ready LIMIT=10000 # an init system's
	event "sigterm with --init presses the power button: it" 0 --init "$WORK/init" \
		--mount "$PWD/build/kernels/$k/lib/modules:/lib/modules,ro"
	SIGNAL='' READY='' LIMIT=''

	# A thread of ours waits for a file system of the host that does not answer.
	# Its server is busy for ever with somebody else: then a wait for it can be ended.
	mkdir -p "$WORK/outer/hangs"
	build/guest-tests/slow "$WORK/outer/hangs" "$WORK/gate" &
	until mountpoint -q "$WORK/outer/hangs"; do sleep 0.1; done
	cat "$WORK/outer/hangs/file" >/dev/null &
	sleep 0.2
	SIGNAL=TERM LIMIT=5000 # one second for the guest, two for us
	event "sigterm while a share hangs" 143 --mount "$WORK/outer:/mnt" -- sh -c '
		cat /mnt/hangs/file & sleep 1; echo now; wait'
	SIGNAL='' LIMIT=''
	says "and heddle says so" 'ended before all was put away' "$WORK/sigterm while a share hangs.err"
	touch "$WORK/gate"
	sleep 0.2
	umount "$WORK/outer/hangs"

	# An init that reads nothing, and a user who has typed more than anyone keeps.
	mkfifo "$WORK/keys"
	timeout -s KILL 120 script -qec "$H -k $kernel -c 1 -m 512 --init $WORK/deaf" /dev/null \
		<"$WORK/keys" >"$WORK/quit.err" 2>&1 &
	pid=$!
	exec 3>"$WORK/keys"
	for _ in $(seq 300); do
		grep -q init-is-ready "$WORK/quit.err" && break
		sleep 0.2
	done
	head -c 20000 /dev/zero | tr '\0' k >&3
	printf '\001x' >&3
	wait $pid
	code=$?
	exec 3>&-
	expect "Ctrl-A x ends heddle" 0

	# Descriptors run out at every step of the set-up in turn, and each time one line says so.
	silent=''
	for n in 6 8 10 12 14 15 16 17 19 21 24 31 37 41; do
		prlimit "--nofile=$n:$n" "$HEDDLE" run -k "$kernel" -c 2 -m 512 -- /no 2>"$WORK/dry" </dev/null
		[ "$(grep -c ^heddle: "$WORK/dry")" -eq 1 ] || silent="$silent $n"
	done
	if [ -z "$silent" ]; then
		pass "a set-up without descriptors says so in one line"
	else
		fail "a set-up without descriptors says so in one line" "not with$silent"
	fi
	if pgrep -s 0 -x heddle >/dev/null; then
		fail "no process is left" "$(pgrep -s 0 -ax heddle)"
	else
		pass "no process is left"
	fi
else
	skip "ends" "no kernel (guest-images/kernels.sh $k)"
fi
finish guest-ends
