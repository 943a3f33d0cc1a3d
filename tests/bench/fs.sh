#!/bin/sh
# make bench-fs: virtio-fs device and file server beside plain system calls on the same directory (fs.c),
# natively, no VM; and the same server mounted through /dev/fuse (tests/fuse/mount.c).
#
# Two things are counted beside it, each by a tool that watches the same program:
# - valgrind (callgrind): user instructions spent in fs_queue_kick, with all it calls but the kernel, for
#   2, 8 and 32 queues beside 1.
# - strace: the system calls of the I/O threads, by name, and of the plain threads.
# The directory is made in BENCH_DIR (default build/bench), on whatever disk that is.
# usage: fs.sh MOUNT-PROGRAM [CASE]
set -eu
cd "$(dirname "$0")/../.."
fs=build/bench/fs
mount=$1
only=${2-}
work=$(mktemp -d "${TMPDIR:-/tmp}/heddle-bench.XXXXXX")
dir=$(mktemp -d "${BENCH_DIR:-build/bench}/fs-share.XXXXXX")
trap 'umount -l "$work/mnt" 2>/dev/null || :; rm -rf "$work" "$dir"' EXIT
trap 'exit 1' HUP INT TERM
rows=$work/rows
: >"$rows"

# Instructions for each request.
instructions() { # read|write QUEUES
	n=$(valgrind -q --tool=callgrind --callgrind-out-file="$work/callgrind" \
		--toggle-collect=fs_queue_kick "$fs" move "$1" "$2" "$dir")
	awk -v n="$n" '$1 == "summary:" { printf "%.3f\n", $2 / n }' "$work/callgrind"
}

count_instructions() { # read|write QUEUES...
	what=$1
	shift
	one=$(instructions "$what" 1)
	for queues; do
		n=$(instructions "$what" "$queues")
		case $queues in 1) plural= ;; *) plural=s ;; esac
		echo "4 KiB $what, $queues queue$plural|user instructions per request (callgrind)|insn|$n|$one|heddle, 1 queue|1.02|ratio|1"
	done
}

# The main thread's name says what is going on; the threads' names, who they are.
count_calls() { # REQUESTS
	awk -v requests="$1" '
	$2 ~ /^prctl\(PR_SET_NAME,/ {
		split($0, part, "\"")
		name[$1] = part[2]
		if (part[2] ~ /^phase /) phase = substr(part[2], 7)
	}
	# A call in two parts counts where it begins.
	$2 !~ /^</ {
		call = $2
		sub(/\(.*/, "", call)
		who = name[$1] ~ /^fs0-/ ? "heddle" : name[$1] == "plain" ? "plain" : ""
		if (!who) next
		calls[who, phase]++
		if (call == "futex") futex[who, phase]++
		if (call ~ /^(brk|mmap|munmap|mremap|madvise)$/) memory[who, phase]++
		by_name[who " " phase " " call]++
	}
	function row(what, phase, h, b) {
		printf "4 KiB %s, 2 queues|%s|", phase, what
		printf "calls|%.4f|%.4f|plain calls|", h, b
	}
	END {
		split("read write", phases, " ")
		for (i = 1; i <= 2; i++) {
			d = phases[i]
			b = d "p"
			moves = by_name["plain " b " pread64"] + by_name["plain " b " pwrite64"]
			# On the way to sleep and back there are three more: their number is the guest'"'"'s.
			own = calls["heddle", d] - by_name["heddle " d " epoll_wait"]
			own -= by_name["heddle " d " read"] + by_name["heddle " d " write"]
			row("system calls per request but wakes (strace)", d, own / requests,
			    moves / requests)
			print "1.01|ratio|1"
			row("futex calls", d, futex["heddle", d] + 0, futex["plain", b] + 0)
			print "0|heddle|1"
			row("calls for memory (brk, mmap ...)", d, memory["heddle", d] + 0, 0)
			print "0|heddle|1"
		}
		for (k in by_name) if (k ~ /^heddle (read|write) /) print k, by_name[k] | "sort 1>&2"
	}' "$work/trace"
}

measure_mount() {
	mkdir "$work/mnt"
	"$mount" -t 2 -c none "$dir" "$work/mnt" "$fs" mount "$dir" "$work/mnt" >>"$rows"
}

if [ -n "$only" ]; then
	:
elif command -v valgrind >/dev/null; then
	count_instructions read 2 8 32 >>"$rows"
	count_instructions write 2 32 >>"$rows"
else
	echo "bench-fs: no valgrind here: instructions are not counted" >&2
fi
if [ -n "$only" ]; then
	:
elif command -v strace >/dev/null; then
	requests=$(strace -f -qq -o "$work/trace" "$fs" trace "$dir")
	count_calls "$requests" >>"$rows"
else
	echo "bench-fs: no strace here: system calls are not counted" >&2
fi
if [ -n "$only" ]; then
	:
elif [ "$(id -u)" -eq 0 ] && [ -w /dev/fuse ]; then
	measure_mount
else
	echo "bench-fs: a mount takes root and /dev/fuse: not measured" >&2
fi
"$fs" measure build/bench "$rows" "$dir" ${only:+"$only"}
