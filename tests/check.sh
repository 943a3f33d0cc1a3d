#!/bin/sh
# make check: every suite, one after another; goes on after a failure; the last line counts all tests.
# SUITES names some of them, for a part of the work.
set -u
cd "$(dirname "$0")/.." || exit 2
rm -rf build/results
mkdir -p build/results
make="make --no-print-directory -j$(nproc)"
start=$(date +%s)

# Sums of the count files, "PASSED FAILED SKIPPED" each; not of the logs beside them.
sums() {
	find build/results -type f ! -name '*.log*' -exec cat {} + | awk '
		NF == 3 && /^[0-9 ]+$/ { p += $1; f += $2; s += $3 }
		END { print p + 0, f + 0, s + 0 }'
}

failures() {
	sums | cut -d ' ' -f 2
}

suite() { # NAME COMMAND...
	name=$1
	shift
	case " ${SUITES:-$name} " in *" $name "*) ;; *) return 0 ;; esac
	echo "== $name"
	began=$(date +%s)
	before=$(failures)
	# A suite that failed without a count of its own counts as one failure.
	if ! "$@" && [ "$(failures)" -eq "$before" ]; then
		echo "0 1 0" >"build/results/failed-$name"
	fi
	now=$(date +%s)
	echo "   ($((now - began)) s, $((now - start)) s in all)"
}

# What guests need: kernels, and the test hosts' image where this machine's KVM will not do.
prepare() {
	guest-images/kernels.sh || return 1
	build/heddle check >/dev/null || tests/testbed/testbed build >build/testbed-build.log 2>&1 ||
		{ cat build/testbed-build.log; return 1; }
}

suite build $make all
# Most of it is waiting for packages, so it goes on beside what follows.
prepare >build/prepare.log 2>&1 &
prepared=$!
suite layers $make layers
suite docs $make docs
suite fuse $make check-fuse
wait "$prepared"
prepared=$?
suite prepare eval 'cat build/prepare.log; [ "$prepared" -eq 0 ]'
suite unit $make check-unit
suite guest $make check-guest
suite asan $make asan
suite tsan $make tsan
suite clang $make CONFIG=clang build/x86-clang/heddle build/x86-clang/libheddle.a
suite musl $make musl
suite fuzz $make fuzz-smoke
suite tidy $make tidy

sums | awk '{
	printf "%d passed, %d failed", $1, $2
	if ($3) printf ", %d skipped", $3
	print ""
	exit $2 > 0 || $1 == 0
}'
