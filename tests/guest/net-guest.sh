# Sourced by what runs inside a guest of the network suites: checks that print "ok NAME" or "FAIL NAME".
ok() { echo "ok $1"; }
bad() { # NAME [FILE]
	echo "FAIL $1"
	[ -n "${2:-}" ] && sed 's/^/| /' "$2" | tail -n 12
	return 0
}

# check NAME COMMAND...: it succeeds
check() {
	name=$1
	shift
	if "$@" >/tmp/check 2>&1; then ok "$name"; else bad "$name" /tmp/check; fi
}

# flow NAME iperf3-arguments...: every stream in every direction gets through, of UDP four fifths
flow() {
	name=$1
	shift
	if iperf3 "$@" >/tmp/flow 2>&1 && grep -q receiver /tmp/flow && ! grep receiver /tmp/flow | grep -q ' 0.00 Bytes' &&
		[ "$(lost /tmp/flow | sort -n | tail -n 1 | grep . || echo 0)" -le 200 ]; then
		ok "$name"
	else
		bad "$name" /tmp/flow
	fi
}

# lost FILE: of an iperf3 UDP receiver's line, frames lost in per mille
lost() {
	awk '/receiver/ { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\/[0-9]+$/) { split($i, n, "/"); print int(1000 * n[1] / (n[2] + !n[2])) } }' "$1"
}

# irqs QUEUE: interrupts so far of a network queue, as in "input.0"
irqs() {
	awk -v q="-$1\$" '$NF ~ q { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' /proc/interrupts
}

# Without these the checks below would find nothing, whatever happened.
for tool in iperf3 ethtool nstat dmesg ping; do
	command -v $tool >/dev/null || bad "$tool is missing"
done

# bad_sums: frames this machine found to have a wrong checksum
bad_sums() {
	nstat -asz 2>/dev/null | awk '/CsumErrors/ { n += $2 } END { print n + 0 }'
}

no_complaint() {
	! dmesg | grep -E 'NETDEV WATCHDOG|soft lockup|virtio.*([Ee]rror|[Ff]ail|not a head)|hung|Call Trace|BUG:'
}
