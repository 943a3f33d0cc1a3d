#!/bin/sh
# Fuzzers.  usage: fuzz.sh replay FUZZER...	the committed corpora, under ASan and UBSan
#	    fuzz.sh smoke FUZZER...	10 s each (SMOKE_SECONDS)
#	    fuzz.sh run FUZZER SECONDS	new finds go to build/fuzz/FUZZER
set -u
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

case $verb in
replay)
	for f in "$@"; do
		mkdir -p build/fuzz
		build/x86-asan/fuzz/"$f" tests/fuzz/corpus/"${f#fuzz_}"/* >"build/fuzz/$f.replay" 2>&1
		report "replay of $f" $? "build/fuzz/$f.replay"
	done ;;
smoke)
	for f in "$@"; do
		one "$f" "${SMOKE_SECONDS:-10}"
		report "$f" $? "build/fuzz/$f/log"
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
