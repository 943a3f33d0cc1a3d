#!/bin/sh
# make demo: a stock Debian kernel boots under heddle and runs a command; in the test host where this
# machine's own KVM cannot run stock kernels.
set -u
cd "$(dirname "$0")/.." || exit 2
guest-images/kernels.sh backports-cloud || exit 1
set -- "$PWD"/build/kernels/backports-cloud/boot/vmlinuz-*
# shellcheck disable=SC2016 # expanded by the guest's shell
job='uname -a; echo "$(nproc) CPUs"'
if build/heddle check >/dev/null; then
	where=
	echo "This machine's KVM runs stock kernels."
else
	where="tests/testbed/testbed run -n --"
	echo "This machine's KVM cannot run stock kernels:"
	build/heddle check | sed 's/^/    /'
	echo "So the demo runs in the test host, an emulated machine (its first start takes some minutes)."
	tests/testbed/testbed up || exit 1
fi
echo "+ heddle run -k $1 -c 2 -- sh -c '$job'"
$where "$PWD/build/heddle" run -k "$1" -c 2 -m 1G --append "mitigations=off norandmaps nokaslr" -- sh -c "$job"
code=$?
echo "exit code $code"
exit $code
