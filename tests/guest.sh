#!/bin/sh
# Guest suites: on this machine, one after another, when its KVM runs stock kernels (some look at the clock);
# else two at a time, each in a test host with a CPU of its own.
# usage: guest.sh SUITE...
set -u
cd "$(dirname "$0")/.." || exit 2
export KERNELS="${KERNELS:-bookworm-cloud bookworm-generic backports-cloud backports-generic}"

# One suite, its output to its log.  TESTBED, set by xargs, says in which test host.
if [ "${1-}" = --suite ]; then
	log=build/results/guest-$2.log
	if [ "$WHERE" = here ]; then
		exec "tests/guest/$2.sh" >"$log" 2>&1
	fi
	for try in 1 2; do
		tests/testbed/testbed run -n -- env KERNELS="$KERNELS" ${FULL:+FULL=1} "tests/guest/$2.sh" >"$log" 2>&1
		code=$?
		# An emulated machine that died says nothing of heddle; a second time it does.
		[ $code -eq 255 ] || exit $code
		cp "$log" "$log.lost"
		[ $try -eq 2 ] || echo "guest-$2: the test host was lost; once more in a new one" >&2
	done
	exit 1
fi

if build/heddle check >/dev/null; then
	echo "guests run on this machine's KVM"
	export WHERE=here
	lanes=1
else
	echo "this machine's KVM cannot run stock kernels (build/heddle check): guests run in test hosts"
	tests/testbed/testbed build || exit 1
	export WHERE=testbed
	lanes=2
fi
mkdir -p build/results
for suite in "$@"; do
	rm -f "build/results/guest-$suite"
	echo "$suite"
done | xargs -r -P "${LANES:-$lanes}" --process-slot-var=TESTBED -I '{}' tests/guest.sh --suite '{}'
bad=0
for suite in "$@"; do
	cat "build/results/guest-$suite.log"
	if [ ! -s "build/results/guest-$suite" ]; then
		echo "FAIL    guest-$suite did not finish"
		echo "0 1 0" >"build/results/guest-$suite"
	fi
	read -r _ failed _ <"build/results/guest-$suite"
	bad=$((bad + failed))
done
[ "$bad" -eq 0 ]
