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
# lanes N SUITE...: N suites at a time
lanes() {
	n=$1
	shift
	for suite in "$@"; do
		rm -f "build/results/guest-$suite"
		echo "$suite"
	done | xargs -r -P "$n" -I '{}' sh -c "$where env KERNELS='$KERNELS' tests/guest/{}.sh >build/results/guest-{}.log 2>&1 || exit 1"
}

# The suite that looks at the clock runs alone.
timed='' rest=''
for suite in "$@"; do
	case $suite in ends) timed=$suite ;; *) rest="$rest $suite" ;; esac
done
[ -n "$timed" ] && lanes 1 "$timed"
# shellcheck disable=SC2086 # a list of names
lanes "${LANES:-2}" $rest
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
