#!/bin/bash
# Tests the file server mounted through /dev/fuse (tests/fuse/mount.c).
# usage: run.sh [-k WORD] [BUILD]     BUILD: where the programs are, default build/x86-release
#   -k  only tests whose name has WORD; else all, every second one in a process beside this
# Last line "fuse: N passed, N failed, N skipped"; the three numbers in build/results/fuse.
set -u
cd "$(dirname "$0")/../.." || exit 2
word=
if [ "${1:-}" = -k ]; then
	word=$2
	shift 2
fi
bin=$PWD/${1:-build/x86-release}/fuse
name=fuse
case ${1:-} in *-asan | *-tsan) name=fuse-${1##*-} ;; esac
mkdir -p build/results

report() {
	echo "$name: $passed passed, $failed failed, $skipped skipped"
	[ -n "${HALF:-}" ] || echo "$passed $failed $skipped" >"build/results/$name"
	[ "$failed" -eq 0 ]
}

passed=0 failed=0 skipped=0
add() {
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}
if [ "$(id -u)" -ne 0 ] || [ ! -w /dev/fuse ]; then
	echo "# a mount takes root and /dev/fuse"
	skipped=1
	report
	exit
fi

# Most tests wait as long as they work: two processes.
if [ -z "$word" ] && [ -z "${HALF:-}" ]; then
	halves=$(mktemp -d)
	for half in 0 1; do
		HALF=$half tests/fuse/run.sh "$@" >"$halves/$half" 2>&1 &
	done
	wait
	for half in 0 1; do
		sed '$d' "$halves/$half"
		# Without its last line it has died.
		line=$(tail -n 1 "$halves/$half" | sed -n "s/^$name: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p")
		# shellcheck disable=SC2086 # three numbers
		add ${line:-0 1 0}
	done
	rm -rf "$halves"
	report
	exit
fi

# Work is done in memory, which is quick, and by tests that ask for it (DISK=1) on a disk.  Before 6.6
# tmpfs has no user xattrs: everything on disk then.
disk=$(mktemp -d "${TMPDIR:-/tmp}/heddle-fuse-XXXXXX")
memory=$disk
if printf '6.6\n%s\n' "$(uname -r)" | sort -CV && [ -w /dev/shm ]; then
	memory=$(mktemp -d /dev/shm/heddle-fuse-XXXXXX)
fi
chmod 755 "$disk" "$memory"
log=$disk/log

unmount_all() {
	local dir
	for dir in "$disk" "$memory"; do
		grep -o " $dir[^ ]*" /proc/mounts | sort -r | xargs -r -n 1 umount -l
	done
}
cleanup() {
	unmount_all
	rm -rf "$disk" "$memory"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# on OPTIONS -- COMMAND...: run the command with the share mounted.
on() {
	local opts=()
	while [ "$1" != -- ]; do
		opts+=("$1")
		shift
	done
	shift
	timeout -k 5 ${LIMIT:-200} "$bin/mount" "${opts[@]}" "$share" "$mnt" "$@"
}
# in_mount OPTIONS -- FUNCTION: the same with a function of this script, in the mount.
in_mount() {
	local fn=${*: -1}
	set -- "${@:1:$#-1}"
	export -f "$fn" fails
	on "$@" bash -ec "cd '$mnt' && $fn"
}
export -f on

number=0
# t NAME FUNCTION ARG...: run with new folders: share = what the server serves, mnt = where it is mounted,
# side = next to them.  Exit code 77 = skipped; the last line of output says why.
t() {
	local test=$1 rc bad start=$SECONDS
	shift
	case $test in *"$word"*) ;; *) return ;; esac
	number=$((number + 1))
	[ $((number % 2)) -eq "${HALF:-$((number % 2))}" ] || return
	local base=$memory
	[ -z "${DISK:-}" ] || base=$disk
	export bin share=$base/share mnt=$base/mnt side=$base/side
	mkdir -p "$share" "$mnt" "$side"
	(set -e; [ -z "${TRACE:-}" ] || set -x; "$@") >"$log" 2>&1
	rc=$?
	if grep -qE 'Sanitizer|runtime error:|^mount: ' "$log"; then
		rc=99
	fi
	if grep -qE '^(not )?ok [0-9]' "$log"; then
		passed=$((passed + $(grep -cE '^ok' "$log") - $(grep -c '# skip' "$log")))
		skipped=$((skipped + $(grep -c '# skip' "$log")))
		bad=$(grep -c '^not ok' "$log")
		# A run that broke off has failed, whatever it counted.
		[ $rc -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
		failed=$((failed + bad))
	elif [ $rc -eq 0 ]; then
		passed=$((passed + 1))
	elif [ $rc -eq 77 ]; then
		skipped=$((skipped + 1))
	else
		failed=$((failed + 1))
	fi
	case $rc in
	0) echo "ok   $test ($((SECONDS - start)) s)" ;;
	77) echo "skip $test: $(tail -n 1 "$log")" ;;
	*) echo "FAIL $test (exit code $rc)" && grep -v '^ok ' "$log" | tail -n 40 ;;
	esac
	unmount_all
	rm -rf "$share" "$mnt" "$side"
}

. tests/fuse/cases.sh
. tests/fuse/rights.sh

t posix-1 posix -t 1
DISK=1 t posix-4 posix -t 4
NOT=setid- t posix-none posix -t 2 -c none -s
NOT=setid- t posix-always posix -t 4 -c always
t stress-1 stress -t 1
DISK=1 t stress-4 stress -t 4
t stress-none stress -t 4 -c none
t stress-pieces stress -t 2 -c always -s
t git git_clone -t 4
DISK=1 t tar tar_there_and_back -t 4
t build c_build -t 4
t sqlite sqlite_wal -t 4
t readonly readonly_share -t 2
t full host_full -t 2
t quota quota_holds -t 2
t host-changes host_changes -t 2
t slow-file slow_file -t 1 -h 2 -c none
DISK=1 t slow-file-auto slow_file -t 1 -h 2
t mounts-below mounts_below -t 2
t links links_without_size -t 2
DISK=1 t nothing-left nothing_left -t 4
DISK=1 t many-files many_files -t 4
DISK=1 t many-files-by-name many_files -t 4 -n
t many-files-on-fuse many_files_on_fuse -t 2
t swapped-folder swapped_folder -t 4 -c none
DISK=1 t overlay overlay_upper -t 4
t posix-locks posix_locks -t 2 -l
t locks-host locks_host -t 2
t locks-local locks_local -t 2
DISK=1 t locks-overlay locks_overlay -t 2
DISK=1 t locks-overlay-host locks_overlay -t 2 -l
t locks-end locks_end -t 2
DISK=1 t attributes attributes attributes_work extent -t 2
DISK=1 t projects attributes projects_work project -t 2
NOT=setid- t posix-acl posix -t 2 -o acl
t posix-writeback posix_writeback -t 2
t posix-mapped posix_mapped -t 2
t posix-squashed posix_squashed -t 2
t owners-of-a-user owners_of_a_user -t 2
t choices-refused choices_refused
DISK=1 t acls acls_as_on_a_local_one -t 2
t xattr-choices xattr_choices -t 2
DISK=1 t overlay-user-names overlay_upper_in_user_names -t 2
t appends appends -t 4
t writes-back writes_back -t 4
DISK=1 t direct-io direct_io -t 2
t host-edits host_edits 1.2 -t 2
t host-edits-none host_edits 0 -t 2 -c none
t host-edits-always host_edits_always -t 2
report
