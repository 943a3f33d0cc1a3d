#!/bin/sh
# make bench-ring: the network device beside a bare loop on the same tap (ring.c), natively, no VM.
#
# Two things are counted beside it, each by a tool that watches the same program:
# - valgrind (callgrind): user instructions spent in net_tx_pass and net_rx_pass, with all they call
#   but the kernel, for 1, 2, 8 and 32 queues.  Not perf: that needs a machine with hardware counters.
# - strace: the system calls of the I/O threads, by name, and of the bare loop's.
set -eu
cd "$(dirname "$0")/../.."
ring=build/bench/ring
work=$(mktemp -d "${TMPDIR:-/tmp}/heddle-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rows=$work/rows
: >"$rows"

# Instructions for each frame.
instructions() { # tx|rx QUEUES
	frames=$(valgrind -q --tool=callgrind --callgrind-out-file="$work/callgrind" \
		--toggle-collect="net_$1_pass" "$ring" move "$1" "$2" 64)
	awk -v n="$frames" '$1 == "summary:" { printf "%.3f\n", $2 / n }' "$work/callgrind"
}

count_instructions() { # tx|rx TX|RX
	one=$(instructions "$1" 1)
	for queues in 1 2 8 32; do
		n=$(instructions "$1" "$queues")
		case $queues in 1) plural= ;; *) plural=s ;; esac
		echo "$2 64 B, $queues queue$plural|user instructions per frame (callgrind)|insn|$n|$one|heddle, 1 queue|1.02|ratio|1"
	done
}

# The main thread's name says what is going on; the threads' names, who they are.
count_calls() { # FRAMES
	awk -v frames="$1" '
	$2 ~ /^prctl\(PR_SET_NAME,/ {
		split($0, part, "\"")
		name[$1] = part[2]
		if (part[2] ~ /^phase /) phase = substr(part[2], 7)
	}
	# A call in two parts counts where it begins.
	$2 !~ /^</ {
		call = $2
		sub(/\(.*/, "", call)
		who = name[$1] ~ /^net0-q/ ? "heddle" : name[$1] == "bare" ? "bare" : ""
		if (!who) next
		calls[who, phase]++
		if (call == "futex") futex[who, phase]++
		if (call ~ /^(brk|mmap|munmap|mremap|madvise)$/) memory[who, phase]++
		by_name[who " " phase " " call]++
	}
	function row(what, direction, h, b) {
		printf "%s 64 B, 2 queues|%s|", toupper(direction), what
		printf "calls|%.4f|%.4f|bare loop|", h, b
	}
	END {
		split("tx rx", directions, " ")
		for (i = 1; i <= 2; i++) {
			d = directions[i]
			b = d "bare"
			moves = by_name["bare " b " writev"] + by_name["bare " b " readv"]
			row("system calls per frame (strace)", d, calls["heddle", d] / frames,
			    moves / frames)
			print "1.1|ratio|1"
			row("futex calls", d, futex["heddle", d] + 0, futex["bare", b] + 0)
			print "0|heddle|1"
			row("calls for memory (brk, mmap ...)", d, memory["heddle", d] + 0, 0)
			print "0|heddle|1"
		}
		for (k in by_name) if (k ~ /^heddle (tx|rx) /) print k, by_name[k] | "sort 1>&2"
	}' "$work/trace"
}

if command -v valgrind >/dev/null; then
	count_instructions tx TX >>"$rows"
	count_instructions rx RX >>"$rows"
else
	echo "bench-ring: no valgrind here: instructions are not counted" >&2
fi
if command -v strace >/dev/null; then
	frames=$(strace -f -qq -o "$work/trace" "$ring" trace)
	count_calls "$frames" >>"$rows"
else
	echo "bench-ring: no strace here: system calls are not counted" >&2
fi
"$ring" measure build/bench "$rows"
