#!/bin/sh
# Fuzzers.  usage: fuzz.sh replay FUZZER...	the committed corpora, under ASan and UBSan
#	    fuzz.sh smoke FUZZER...	5 s each (SMOKE_SECONDS)
#	    fuzz.sh run FUZZER SECONDS	new finds go to build/fuzz/FUZZER
# replay and smoke run as many at a time as there are CPUs.
set -u
cd "$(dirname "$0")/.." || exit 2
verb=$1
shift
passed=0 failed=0
mkdir -p build/results

# one FUZZER SECONDS: libFuzzer, on a copy of the corpus
one() {
	work=build/fuzz/$1
	mkdir -p "$work/corpus" "$work/finds"
	build/x86-fuzz/fuzz/"$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$work/finds/" "$work/corpus" "tests/fuzz/corpus/${1#fuzz_}" >"$work/log" 2>&1
}

report() { # NAME CODE LOG
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL $1"
		tail -n 30 "$3"
	fi
}

# each VERB FUZZER...: this script with VERB for each of them; leaves build/fuzz/FUZZER.code
each() {
	what=$1
	shift
	mkdir -p build/fuzz
	printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' sh -c "tests/fuzz.sh $what {}; echo \$? >build/fuzz/{}.code"
}

case $verb in
one-replay)
	build/x86-asan/fuzz/"$1" tests/fuzz/corpus/"${1#fuzz_}"/* >"build/fuzz/$1.replay" 2>&1
	exit ;;
one-smoke)
	one "$1" "${SMOKE_SECONDS:-5}"
	exit ;;
replay)
	each one-replay "$@"
	for f in "$@"; do
		report "replay of $f" "$(cat "build/fuzz/$f.code")" "build/fuzz/$f.replay"
	done ;;
smoke)
	each one-smoke "$@"
	for f in "$@"; do
		report "$f" "$(cat "build/fuzz/$f.code")" "build/fuzz/$f/log"
		sed -n 's/^stat::number_of_executed_units: */  '"$f"': runs /p' "build/fuzz/$f/log"
	done ;;
run)
	one "$1" "$2"
	code=$?
	tail -n 20 "build/fuzz/$1/log"
	exit $code ;;
esac
echo "fuzz-$verb: $passed passed, $failed failed"
echo "$passed $failed 0" >"build/results/fuzz-$verb"
[ "$failed" -eq 0 ]
