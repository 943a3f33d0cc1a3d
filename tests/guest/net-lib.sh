# Sourced by the network suites, first: each lives in a network namespace of its own.
[ -n "${HEDDLE_TEST_NETNS-}" ] || exec unshare -n env HEDDLE_TEST_NETNS=1 "$0" "$@"
. tests/guest/lib.sh
ip link set lo up

# tap NAME N [FLAGS]: a persistent tap, the host's end of network N: 10.9.N.1/24 and fd09:N::1/64
tap() {
	ip tuntap add dev "$1" mode tap vnet_hdr ${3-multi_queue}
	ip addr add "10.9.$2.1/24" dev "$1"
	ip addr add "fd09:$2::1/64" dev "$1" nodad
	ip link set "$1" up
}

# serve [ARG...]: iperf3 in this namespace, until the suite ends
serve() {
	iperf3 -s -D "$@" >/dev/null
}

# count NAME: the lines "ok WHAT" and "FAIL WHAT" that the guest of run NAME said are tests of ours; it must
# have come to its end
count() {
	while IFS= read -r line; do
		case $line in
		"ok "*) pass "$1: ${line#ok }" ;;
		"FAIL "*) fail "$1: ${line#FAIL }" "see its output" ;;
		esac
	done <"$WORK/$1.out"
	if grep -q '^end of script$' "$WORK/$1.out" && [ "$code" -eq 0 ]; then
		pass "$1: ran to its end"
	else
		fail "$1" "exit code $code, or not at its end" "$WORK/$1.err"
	fi
	if grep -q '^FAIL' "$WORK/$1.out"; then
		sed 's/^/        | /' "$WORK/$1.out" | tail -n 60
	fi
}

# until_ok SECONDS COMMAND...: wait for it to succeed
until_ok() {
	n=$(($1 * 10))
	shift
	while [ "$n" -gt 0 ]; do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.1
		n=$((n - 1))
	done
	return 1
}
