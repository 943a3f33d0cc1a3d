# Sourced by the guest suites.  They run on a machine whose KVM runs stock kernels: this one, or the test
# host (tests/guest.sh decides).  Environment: HEDDLE, KERNELS (names below build/kernels), OUT.
set -u
HEDDLE=${HEDDLE:-$PWD/build/heddle}
TOOL=${TOOL:-$PWD/build/guest-tests/tool}
KERNELS=${KERNELS:-bookworm-cloud bookworm-generic backports-cloud backports-generic}
# Under emulation the kernel's mitigations cost more than all else; here they protect nothing.
QUICK="mitigations=off norandmaps nokaslr"
WORK=$(mktemp -d /tmp/heddle-guest.XXXXXX)
trap 'rm -rf "$WORK"' EXIT
# A heddle that boots quickly here: for timeout, script and pipes.
H=$WORK/h
printf '#!/bin/sh\nexec "%s" run --append "%s" "$@"\n' "$HEDDLE" "$QUICK" >"$H"
chmod +x "$H"
passed=0 failed=0 skipped=0 started=$(date +%s)

kernel() { # NAME -> path of its kernel file
	set -- build/kernels/"$1"/boot/vmlinuz-*
	[ -e "$1" ] || return 1
	echo "$PWD/$1"
}

pass() {
	passed=$((passed + 1))
	echo "ok      $1"
}

fail() { # NAME WHAT [FILE shown]
	failed=$((failed + 1))
	echo "FAIL    $1: $2"
	[ -n "${3:-}" ] && sed 's/^/        | /' "$3" | tail -n 25
	return 0
}

skip() {
	skipped=$((skipped + 1))
	echo "skipped $1: $2"
}

# run NAME SECONDS heddle-arguments...: output to $WORK/NAME.{out,err}, exit code to $code
run() {
	name=$1 limit=$2
	shift 2
	timeout -s KILL "$limit" "$H" "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" </dev/null
	code=$?
}

# expect NAME CODE: the last run's exit code
expect() {
	if [ "$code" -eq "$2" ]; then
		pass "$1"
	else
		fail "$1" "exit code $code, not $2" "$WORK/$name.err"
	fi
}

# says NAME PATTERN FILE: a line of the file matches
says() {
	if grep -qE -- "$2" "$3"; then
		pass "$1"
	else
		fail "$1" "no line matches $2" "$3"
	fi
}

finish() { # SUITE
	echo "$1: $passed passed, $failed failed, $skipped skipped ($(($(date +%s) - started)) s)"
	mkdir -p build/results
	echo "$passed $failed $skipped" >"build/results/$1"
	[ "$failed" -eq 0 ]
}
