#!/bin/sh
# Guest suites, two at a time: on this machine when its KVM runs stock kernels, else in the test host.
# usage: guest.sh SUITE...
set -u
cd "$(dirname "$0")/.." || exit 2
if build/heddle check >/dev/null; then
	echo "guests run on this machine's KVM"
	where=
else
	echo "this machine's KVM cannot run stock kernels (build/heddle check): guests run in the test host"
	tests/testbed/testbed up || exit 1
	where="tests/testbed/testbed run -n --"
fi
export KERNELS="${KERNELS:-bookworm-cloud bookworm-generic backports-cloud backports-generic}"
mkdir -p build/results
for suite in "$@"; do
	rm -f "build/results/guest-$suite"
	echo "$suite"
done | xargs -P "${LANES:-2}" -I '{}' sh -c "$where env KERNELS='$KERNELS' tests/guest/{}.sh >build/results/guest-{}.log 2>&1"
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
