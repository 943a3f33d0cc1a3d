#!/bin/sh
# make check: every suite, one after another; goes on after a failure; the last line counts all tests.
# SUITES names some of them, for a part of the work.
set -u
cd "$(dirname "$0")/.." || exit 2
rm -rf build/results
mkdir -p build/results
make="make --no-print-directory -j$(nproc)"
start=$(date +%s)

suite() { # NAME COMMAND...
	name=$1
	shift
	case " ${SUITES:-$name} " in *" $name "*) ;; *) return 0 ;; esac
	echo "== $name"
	if ! "$@"; then
		# A suite that failed without a count of its own counts as one failure.
		awk '$2 > 0 { found = 1 } END { exit !found }' build/results/* 2>/dev/null ||
			echo "0 1 0" >"build/results/failed-$name"
	fi
	echo "   ($(($(date +%s) - start)) s)"
}

suite build $make all
suite kernels $make kernels
suite layers $make layers
suite docs $make docs
suite unit $make check-unit
suite fuse $make check-fuse
suite guest $make check-guest
suite asan $make asan
suite tsan $make tsan
suite clang $make CONFIG=clang build/x86-clang/heddle unit
suite musl $make musl
suite fuzz $make fuzz-smoke
suite tidy $make tidy

cat build/results/* 2>/dev/null | awk '
	NF == 3 && /^[0-9 ]+$/ { p += $1; f += $2; s += $3 }
	END { printf "%d passed, %d failed", p, f; if (s) printf ", %d skipped", s; print ""; exit f > 0 || p == 0 }'
