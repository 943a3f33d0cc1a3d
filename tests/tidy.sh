#!/bin/sh
# clang-tidy over the sources given; .clang-tidy says which checks and why some are off.
set -u
cd "$(dirname "$0")/.." || exit 2
mkdir -p build/results build/tidy
printf '%s\n' "$@" | xargs -P 2 -I '{}' sh -c '
	log=build/tidy/$(echo {} | tr / _)
	clang-tidy --quiet {} -- -std=gnu11 -D_GNU_SOURCE -DHEDDLE_VERSION="\"0\"" -I. -Wno-unknown-warning-option \
		>$log 2>&1 && echo ok >$log.code || echo bad >$log.code'
passed=0 failed=0
for f in "$@"; do
	log=build/tidy/$(echo "$f" | tr / _)
	if [ "$(cat "$log.code")" = ok ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL tidy $f"
		cat "$log"
	fi
done
echo "tidy: $passed passed, $failed failed"
echo "$passed $failed 0" >build/results/tidy
[ "$failed" -eq 0 ]
