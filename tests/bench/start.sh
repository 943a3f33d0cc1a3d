#!/bin/sh
# make bench-start: where KVM runs guests at all (build/heddle check says 0 or 2), on this machine;
# else in the test host.  The payload runs a dozen instructions: a KVM that interprets kernel code
# will do.
# usage: start.sh [--here HOST]     RUNS from the environment (default 21)
set -eu
cd "$(dirname "$0")/../.."
runs=${RUNS:-21}
if [ "${1-}" != --here ]; then
	code=0
	build/heddle check >/dev/null || code=$?
	case $code in
	0) exec "$0" --here 'this machine' ;;
	2) exec "$0" --here 'this machine, whose KVM interprets kernel code' ;;
	esac
	echo "no guest runs on this machine's KVM (build/heddle check): measured in the test host"
	exec tests/testbed/testbed run -n -- env RUNS="$runs" "$0" --here 'the emulated test host'
fi
# Copies, so that the files come from a local file system in the test host as well.
work=$(mktemp -d "${TMPDIR:-/tmp}/heddle-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for f in heddle bare start exit.bzimage halt.bzimage; do
	cp "build/bench/$f" "$work/"
done
mkdir "$work/share"
: >"$work/initrd"
"$work/start" "$work" build/bench "$2" "$runs"
