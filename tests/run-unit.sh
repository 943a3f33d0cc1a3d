#!/bin/sh
# Runs Check programs, as many at a time as there are CPUs, and adds up what they report.
# usage: run-unit.sh SUITE PROGRAM...   Output of each program is shown when it fails.
# Result: a line "SUITE: N passed, N failed, N skipped" and build/results/SUITE; exit 1 when any failed.
set -u
suite=$1
shift
mkdir -p build/results
passed=0 failed=0 skipped=0
outs=$(mktemp -d)
trap 'rm -rf "$outs"' EXIT
export outs CK_VERBOSITY=normal UNIT_TIMEOUT="${UNIT_TIMEOUT:-300}"
# shellcheck disable=SC2016 # expanded by the inner shell
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' sh -c '
	timeout "$UNIT_TIMEOUT" {} >"$outs/$(basename {})" 2>&1
	echo $? >"$outs/$(basename {}).code"'
for program in "$@"; do
	out=$(cat "$outs/$(basename "$program")")
	code=$(cat "$outs/$(basename "$program").code")
	# "skipped: N, why": tests that need something this machine lacks.
	skips=$(printf '%s\n' "$out" | sed -n 's/^skipped: \([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
	skipped=$((skipped + skips))
	[ "$skips" -gt 0 ] && printf '%s\n' "$out" | grep '^skipped: '
	[ "$code" -eq 77 ] && [ "$skips" -gt 0 ] && continue
	line=$(printf '%s\n' "$out" | grep -E '^[0-9]+%: Checks: ' | tail -n 1)
	checks=$(printf '%s\n' "$line" | sed -n 's/.*Checks: \([0-9]*\),.*/\1/p')
	bad=$(printf '%s\n' "$line" | sed -n 's/.*Failures: \([0-9]*\), Errors: \([0-9]*\).*/\1 + \2/p')
	bad=$((${bad:-0}))
	checks=${checks:-0}
	# A program that died, or tested nothing, has failed whatever it counted.
	if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$checks" -eq 0 ]; then
		bad=$((bad + 1))
		checks=$((checks + 1))
	fi
	if [ "$bad" -ne 0 ]; then
		printf '%s\n' "$out"
		echo "FAIL $program (exit code $code)"
	fi
	passed=$((passed + checks - bad))
	failed=$((failed + bad))
done
echo "$suite: $passed passed, $failed failed, $skipped skipped"
echo "$passed $failed $skipped" >"build/results/$suite"
[ "$failed" -eq 0 ]
