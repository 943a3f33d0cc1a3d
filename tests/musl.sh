#!/bin/sh
# Every source compiles against musl.  Linking needs libkmod and the decompressors built for musl, which
# Debian does not have: that is checked where they exist (MUSL_LIBS="-L... -lkmod ...").
# usage: musl.sh SOURCE...
set -u
cd "$(dirname "$0")/.." || exit 2
mkdir -p build/results build/musl
passed=0 failed=0
if [ "${1-}" = --one ]; then
	o=build/musl/$(echo "$2" | tr / _).o
	f=$2
	rm -f "$o"
	exec musl-gcc -std=gnu11 -O1 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror \
		-D_GNU_SOURCE -DHEDDLE_VERSION='"0"' -I. -idirafter /usr/include \
		-idirafter "/usr/include/$(gcc -print-multiarch)" -c -o "$o" "$f"
fi
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' tests/musl.sh --one '{}'
for f in "$@"; do
	if [ -e "build/musl/$(echo "$f" | tr / _).o" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL musl $f"
	fi
done
echo "musl: $passed passed, $failed failed"
echo "$passed $failed 0" >build/results/musl
[ "$failed" -eq 0 ]
