# The tests of run.sh, sourced by it.  A function gets the mount's options; folders are $share, $mnt,
# $side.  Functions called in_mount run with -e, in the mount.

# For -e, which a command behind "!" does not end.
fails() {
	if "$@"; then
		echo "did not fail: $*"
		return 1
	fi
}

# NOT: cases left out, as they take long and would say the same.
posix() {
	on "$@" -- "$bin/posix" ${NOT:+-x "$NOT"} -o "$side" "$mnt"
}

posix_locks() {
	on "$@" -- "$bin/posix" -k lock- -o "$side" "$mnt"
}

stress() {
	on "$@" -- "$bin/stress" -t 4 -n 1500 "$mnt"
	# What the host has is what the threads of the last test saw: a second look through a new mount.
	on "$@" -- diff -r "$share" "$mnt"
}

# --- real programs --------------------------------------------------------------------------------

git_work() {
	git clone -q "$side/repo" clone
	cd clone
	git fsck --strict
	for i in 1 2 3; do
		echo "$i" >"new$i"
		git add "new$i"
		git mv "file$i" "moved$i"
		git commit -qm "commit $i"
	done
	git gc -q
	git fsck --strict
	git checkout -q HEAD~5
	git checkout -q -
	[ -z "$(git status --porcelain)" ]
}
git_clone() {
	export HOME=$side GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t
	export GIT_COMMITTER_EMAIL=t@t GIT_CONFIG_NOSYSTEM=1
	git init -q "$side/repo"
	for i in $(seq 1 200); do seq "$i" 500 >"$side/repo/file$i"; done
	for i in $(seq 1 10); do
		echo "$i" >>"$side/repo/file$i"
		git -C "$side/repo" add .
		git -C "$side/repo" commit -qm "$i"
	done
	in_mount "$@" -- git_work
	git -c safe.directory='*' -C "$share/clone" fsck --strict
}

tar_work() {
	tar xpf "$side/in.tar"
	tar df "$side/in.tar"
	tar cf "$side/out.tar" tree
	[ "$(stat -c %i tree/hard)" = "$(stat -c %i tree/1/10)" ]
	cp -a tree copy
	diff -rx fifo tree copy
	rm -rf tree copy
	[ -z "$(ls -A)" ]
}
tar_there_and_back() {
	mkdir "$side/tree"
	for d in $(seq 1 20); do
		mkdir "$side/tree/$d"
		for f in $(seq 1 50); do echo "$d $f" >"$side/tree/$d/$f"; done
	done
	ln "$side/tree/1/10" "$side/tree/hard"
	ln -s 1/10 "$side/tree/soft"
	mkfifo -m 604 "$side/tree/fifo"
	chmod 1777 "$side/tree/2"
	chown -R 123:456 "$side/tree/3"
	dd if=/dev/urandom of="$side/tree/large" bs=1M count=20 status=none
	truncate -s 1T "$side/tree/sparse"
	tar cSf "$side/in.tar" -C "$side" tree
	rm "$side/tree/sparse" # tar df would read all of it
	tar cf "$side/in.tar" -C "$side" tree
	in_mount "$@" -- tar_work
	mkdir "$side/again"
	tar xpf "$side/out.tar" -C "$side/again"
	diff -rx fifo --no-dereference "$side/tree" "$side/again/tree"
	[ "$(stat -c %u:%g "$side/again/tree/3")" = 123:456 ]
}

build_work() {
	make -s -j4
	[ "$(./prog)" = 780 ]
	touch f3.h
	make -s -q && return 1
	make -s -j4
	make -s -q
	make -s clean
}
c_build() {
	local sum=
	for i in $(seq 1 39); do
		echo "int f$i(void);" >"$share/f$i.h"
		printf '#include "f%d.h"\nint f%d(void)\n{\n\treturn %d;\n}\n' "$i" "$i" "$i" \
			>"$share/f$i.c"
		echo "#include \"f$i.h\"" >>"$share/main.h"
		sum="$sum + f$i()"
	done
	printf '#include <stdio.h>\n#include "main.h"\nint main(void)\n{\n\tprintf("%%d\\n", 0%s);\n}\n' \
		"$sum" >"$share/main.c"
	printf 'CFLAGS = -MMD -O2\nO := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $O\n%s%s%s' \
		"$(printf '\t')\$(CC) -o \$@ \$O" "$(printf '\nclean:\n\t')rm -f prog *.o *.d" \
		"$(printf '\n')
-include *.d
" >"$share/Makefile"
	in_mount "$@" -- build_work
	[ ! -e "$share/prog" ]
}

sqlite_rows() {
	for i in $(seq 1 40); do
		echo "BEGIN IMMEDIATE;"
		for j in $(seq 1 50); do echo "INSERT INTO t VALUES($1, $i, $j, randomblob(200));"; done
		echo "COMMIT;"
	done | sqlite3 -cmd '.timeout 60000' db
}
sqlite_work() {
	sqlite3 db 'PRAGMA journal_mode=wal; CREATE TABLE t(a, b, c, d);' | grep -q wal
	sqlite_rows 1 &
	sqlite_rows 2
	wait $!
	[ "$(sqlite3 db 'SELECT count(*) FROM t')" = 4000 ]
	[ "$(sqlite3 db 'PRAGMA integrity_check')" = ok ]
}
sqlite_wal() {
	command -v sqlite3 >/dev/null || { echo "no sqlite3"; return 77; }
	export -f sqlite_rows
	in_mount "$@" -- sqlite_work
	[ "$(sqlite3 "$share/db" 'PRAGMA integrity_check')" = ok ]
}

# --- the host -------------------------------------------------------------------------------------

readonly_work() {
	[ "$(cat d/f)" = content ]
	fails sh -c "echo x >d/f"
	fails sh -c "echo x >new"
	fails rm d/f
	fails mkdir x
	fails chmod 600 d/f
	[ "$(ls d)" = f ]
}
readonly_share() {
	mkdir "$share/d"
	echo content >"$share/d/f"
	in_mount "$@" -r -- readonly_work
}

full_work() {
	dd if=/dev/urandom of=part bs=1M count=4 status=none
	sum=$(sha256sum <part)
	fails dd if=/dev/zero of=fill bs=64k status=none
	fails cp part again
	[ "$(stat -c %s fill)" -gt 0 ]
	[ "$(stat -fc '%b %a %S' "$mnt")" = "$(stat -fc '%b %a %S' "$share")" ]
	rm -f fill again
	cp part again
	[ "$(sha256sum <part)" = "$sum" ] && [ "$(sha256sum <again)" = "$sum" ]
	fails touch $(seq 1 3000) 2>/dev/null
	[ "$(stat -fc '%c %d' "$mnt")" = "$(stat -fc '%c %d' "$share")" ]
	rm -f [0-9]*
	echo x >room
}
host_full() {
	mount -t tmpfs -o size=16m,nr_inodes=1000 heddle-test "$share"
	in_mount "$@" -- full_work
}

quota_work() {
	touch f
	chown 1000 f
	fails dd if=/dev/zero of=f bs=64k count=40 oflag=sync status=none
	[ "$(stat -c %s f)" -le 1048576 ]
}
# Limits of the file's owner hold, though the server is root.
quota_holds() {
	mount -t tmpfs -o usrquota_block_hardlimit=1m heddle-test "$share" 2>/dev/null ||
		{ echo "no tmpfs with quotas"; return 77; }
	in_mount "$@" -- quota_work
}

changes_work() {
	exec 3<f
	cat f shrink grow gone >/dev/null
	[ ! -e later ]
	printf 'new content' >"$share/f.t"
	mv "$share/f.t" "$share/f"
	truncate -s 3 "$share/shrink"
	echo more >>"$share/grow"
	rm "$share/gone"
	echo x >"$share/later"
	sleep 1.2
	[ "$(cat f)" = 'new content' ]
	[ "$(cat <&3)" = 'old content' ]
	[ "$(cat shrink)" = 012 ]
	[ "$(cat grow | tail -n 1)" = more ]
	[ ! -e gone ]
	[ "$(cat later)" = x ]
	echo back >gone
	[ "$(cat "$share/gone")" = back ]
	# Right after the host has made a name that the guest knows as absent.
	[ ! -e race ]
	echo host >"$share/race"
	echo guest >>race
	[ "$(cat "$share/race" | tr '\n' ' ')" = 'host guest ' ]
}
host_changes() {
	echo 'old content' >"$share/f"
	echo 0123456789 >"$share/shrink"
	echo first >"$share/grow"
	echo x >"$share/gone"
	in_mount "$@" -- changes_work
}

below_work() {
	[ "$(stat -c %i a/f)" != "$(stat -c %i b/f)" ]
	find . ! -name g -printf '%D:%i\n' | sort | uniq -d | grep . && return 1
	[ "$(tar cf - . | tar tvf - | grep -c 'link to')" = 1 ]
	fails ln a/f b/l
	mv a/f b/moved
	[ "$(cat b/moved)" = a ]
	[ "$(stat -f -c %b a)" != "$(stat -f -c %b .)" ]
}
mounts_below() {
	mkdir "$share/a" "$share/b" "$share/c"
	mount -t tmpfs heddle-test "$share/a"
	mount -t tmpfs heddle-test "$share/b"
	echo a >"$share/a/f"
	echo b >"$share/b/f"
	ln "$share/b/f" "$share/b/g"
	[ "$(stat -c %i "$share/a/f")" = "$(stat -c %i "$share/b/f")" ]
	in_mount "$@" -- below_work
}

links_work() {
	[ "$(readlink p/mounts)" = self/mounts ]
	[ -d p/self/fd ]
	[ "$(stat -c %s p/mounts)" = 11 ]
	[ "$(readlink p/mounts)" = self/mounts ]
}
links_without_size() {
	mkdir "$share/p"
	mount -t proc heddle-test "$share/p"
	in_mount "$@" -- links_work
}

# More readers of a file system that hangs than there are helpers: the only queue goes on all the same.
slow_work() {
	local readers=()
	for i in 1 2 3; do
		cat hangs/file >"$side/got$i" &
		readers+=($!)
	done
	sleep 0.3
	for i in $(seq 100); do [ "$(cat fast)" = content ]; done
	[ "$(ls -f | wc -l)" = 4 ]
	echo new >made
	mv made made2
	sync -f made2
	kill -0 "${readers[@]}"
	touch "$side/gate"
	wait "${readers[@]}"
	[ "$(cat "$side"/got?)" = "$(printf 'slow\nslow\nslow')" ]
	[ "$(cat hangs/file)" = slow ]
}
slow_file() {
	local pid
	mkdir "$share/hangs"
	echo content >"$share/fast"
	"$bin/slow" "$share/hangs" "$side/gate" &
	pid=$!
	for i in $(seq 50); do mountpoint -q "$share/hangs" && break; sleep 0.1; done
	in_mount "$@" -- slow_work
	umount "$share/hangs"
	wait $pid
}

# --- locks ----------------------------------------------------------------------------------------

# posix_lock FILE try: is a POSIX lock on it free?  posix_lock FILE hold: takes it, says so, and has it
# until its standard input ends.
posix_lock() {
	perl -e 'use Fcntl; $| = 1; open(my $f, "+<", $ARGV[0]) or exit 3;
		my $l = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
		fcntl($f, F_SETLK, $l) or exit 1;
		if ($ARGV[1] eq "hold") { print "held\n"; <STDIN>; }' "$1" "$2"
}
# excludes HELD OTHER...: what holds a lock on HELD keeps others from OTHER, and gives way when it ends.
excludes() {
	local held=$1 other
	shift
	exec 9>>"$held"
	flock -n 9
	for other; do fails flock -n "$other" true; done
	# RELEASE is not waited for by close(): a moment for it.
	exec 9>&-
	for other; do flock -w 5 "$other" true; done
	coproc holder { posix_lock "$held" hold; }
	read -r -u "${holder[0]}"
	for other; do fails posix_lock "$other" try; done
	exec {holder[1]}>&-
	wait "$holder_PID"
	for other; do posix_lock "$other" try; done
}
# Who waits gets the lock when it is free, and not before.
hands_over() {
	local from=$1 to=$2
	exec 9>>"$from"
	flock -n 9
	fails flock -w 0.3 "$to" true
	(exec 9>&- && flock "$to" touch "$side/got") &
	sleep 0.5
	[ ! -e "$side/got" ]
	exec 9>&-
	wait $!
	[ -e "$side/got" ]
	rm "$side/got"
}
locks_work() {
	touch l
	excludes "$mnt/l" "$mnt/l" "$side/mnt2/l" "$share/l"
	excludes "$side/mnt2/l" "$mnt/l" "$share/l"
	excludes "$share/l" "$mnt/l" "$side/mnt2/l"
	hands_over "$mnt/l" "$side/mnt2/l"
	hands_over "$mnt/l" "$share/l"
	hands_over "$share/l" "$mnt/l"
	flock -n "$mnt/dir" flock -n "$side/mnt2/dir" true # local on directories
}
# Two guests on one folder, and the host.
locks_host() {
	mkdir "$side/mnt2" "$share/dir"
	export -f fails posix_lock excludes hands_over locks_work
	on "$@" -l -- "$bin/mount" -t 2 -l "$share" "$side/mnt2" bash -ec "cd '$mnt'; locks_work"
}
# Who never asked for it shares no lock with the host; inside it is exclusive all the same.
locks_local_work() {
	touch l
	excludes "$mnt/l" "$mnt/l"
	flock -n l flock -n "$share/l" true
}
locks_local() {
	export -f fails posix_lock excludes
	in_mount "$@" -- locks_local_work
}
locks_overlay_work() {
	mkdir lower upper work merged
	touch lower/l lower/k
	mount -t overlay heddle-test -o lowerdir=lower,upperdir=upper,workdir=work merged
	excludes merged/l merged/l
	exec 8<merged/k
	flock -n 8
	fails flock -n merged/k true
	exec 8<&-
	umount merged
}
locks_overlay() {
	export -f fails posix_lock excludes
	in_mount "$@" -- locks_overlay_work
}
# A server that dies, or is unmounted, leaves no lock on the host.
locks_end_work() {
	touch l
	exec 9>l
	flock -n 9
	fails flock -n "$share/l" true
	posix_lock l hold < <(sleep 60) &
	for i in $(seq 50); do posix_lock "$share/l" try || break; sleep 0.1; done
	fails posix_lock "$share/l" try
	touch "$side/reached"
	kill -9 "$PPID"
}
locks_end() {
	export -f fails posix_lock
	in_mount "$@" -l -- locks_end_work || true
	[ -e "$side/reached" ]
	flock -w 5 "$share/l" true
	posix_lock "$share/l" try
}

# --- attributes of files --------------------------------------------------------------------------

same_attributes() {
	local name
	for name; do
		[ "$(lsattr -pd "$name")" = "$(cd "$share" && lsattr -pd "$name")" ]
	done
}
attributes_work() {
	mkdir d
	touch f
	chattr +d f
	chattr +dA d
	touch d/g
	fails chattr +i f
	fails chattr +a d
	same_attributes f d d/g
	case $(lsattr -d f) in *d*' f') ;; *) false ;; esac
	case $(lsattr -d d) in *d*A*' d') ;; *) false ;; esac
	chattr -d f
	same_attributes f
	case $(cd "$share" && lsattr f) in *d*' f') false ;; esac
	# What the host has fixed stays.
	chattr +i "$share/f"
	fails chattr -i f
	chattr -i "$share/f"
	echo x >>f
}
projects_work() {
	mkdir d
	touch f
	chattr -p 5 f
	chattr +P -p 77 d
	touch d/g
	same_attributes f d d/g
	case $(lsattr -pd d/g) in *' 77 '*) ;; *) false ;; esac
}
# attributes FUNCTION FEATURES OPTION...: on an ext4 with these features.
attributes() {
	local fn=$1 features=$2
	shift 2
	truncate -s 32m "$side/image"
	mkfs.ext4 -q -O "$features" "$side/image" && mount -o loop "$side/image" "$share" 2>/dev/null ||
		{ echo "no ext4 with $features on a loop device"; return 77; }
	export -f fails same_attributes
	in_mount "$@" -- "$fn"
	umount "$share"
}

# --- bounds ---------------------------------------------------------------------------------------

count_fds() {
	ls "/proc/$1/fd" | wc -l
}
nothing_left_work() {
	[ "$(find . -type f | wc -l)" = 2000 ]
	ls -lR . >/dev/null
	ls -f m >/dev/null
	tar cf /dev/null .
}
# Descriptors come back when the client drops its cache, and a host mount can go.
nothing_left() {
	local pid before after
	mkdir "$share/m"
	mount -t tmpfs heddle-test "$share/m"
	(cd "$share/m" && touch $(seq 1 2000))
	"$bin/mount" "$@" "$share" "$mnt" &
	pid=$!
	for i in $(seq 50); do mountpoint -q "$mnt" && break; sleep 0.1; done
	ls "$mnt" >/dev/null
	before=$(count_fds $pid)
	(cd "$mnt" && nothing_left_work)
	[ "$(count_fds $pid)" -gt 2000 ]
	for i in $(seq 20); do
		echo 2 >/proc/sys/vm/drop_caches
		after=$(count_fds $pid)
		[ "$after" -gt $((before + 16)) ] || break
		sleep 0.2
	done
	echo "descriptors: $before before, $after after"
	[ "$after" -le $((before + 16)) ]
	umount "$share/m"
	kill $pid
	wait $pid
}

# The host swaps a folder for a link that leads out, as fast as it can, while the client works in it.
swapped_work() {
	set +e
	end=$((SECONDS + 3))
	while [ $SECONDS -lt $end ]; do
		cat d/secret d/sub/secret
		echo overwritten >d/canary
		chmod 777 d/canary
		touch d/new
		ls d d/sub
		rm -rf d/sub
		mkdir d/sub && echo inside >d/sub/secret
	done >"$side/seen" 2>/dev/null
	true
}
swapped_folder() {
	local pid
	mkdir "$share/d" "$share/d/sub" "$side/outside" "$side/outside/sub"
	echo outside-secret | tee "$side/outside/secret" >"$side/outside/sub/secret"
	echo canary >"$side/outside/canary"
	chmod 600 "$side/outside/canary"
	ln -s "$side/outside" "$share/link"
	"$bin/swap" "$share/d" "$share/link" &
	pid=$!
	in_namespace "$@"
	kill $pid
	wait $pid || true
	[ -s "$side/seen" ]
	fails grep outside-secret "$side/seen"
	[ "$(cat "$side/outside/canary")" = canary ]
	[ "$(stat -c %a "$side/outside/canary")" = 600 ]
	[ "$(ls "$side/outside")" = "$(printf 'canary\nsecret\nsub')" ]
	[ "$(ls "$side/outside/sub")" = secret ]
}
# The client's own kernel follows the link in the client's tree, which is no fault of the server: so the
# folder outside is covered for the client.
in_namespace() {
	export -f swapped_work
	on "$@" -- unshare -m bash -ec "mount -t tmpfs none '$side/outside'; cd '$mnt'; swapped_work"
}

overlay_work() {
	mkdir lower upper work merged
	mkdir -p lower/dir/sub
	echo 1 >lower/f
	echo 2 >lower/dir/g
	mount -t overlay heddle-test -o lowerdir=lower,upperdir=upper,workdir=work merged
	cd merged
	mv dir moved || { mkdir moved && cp -a dir/. moved && rm -r dir; }
	rm f
	[ ! -e f ] && [ ! -e dir ]
	echo 3 >f
	echo 4 >>moved/g
	[ "$(cat f moved/g | tr '\n' ' ')" = '3 2 4 ' ]
	rm -r moved
	mkdir moved
	[ -z "$(ls moved)" ]
	cd ..
	umount merged
	[ -c upper/dir ]
	[ "$(stat -c %t:%T upper/dir)" = 0:0 ]
}
overlay_upper() {
	in_mount "$@" -- overlay_work
}

# --- more files than descriptors -------------------------------------------------------------------

# Many times more files than descriptors; FULL=1: 30000.
walk_work() {
	local n
	exec 3<d0/f7 4<d1 5<d1/f1
	[ "$(find . -type f | wc -l)" = $((20 * per)) ]
	(while [ ! -e "$side/walked" ]; do
		for n in 1 2 3 4 5; do mv "d$n" "r$n" && mv "r$n/f9" "r$n/g9"; done
		for n in 1 2 3 4 5; do mv "r$n/g9" "r$n/f9" && mv "r$n" "d$n"; done
	done) &
	# Files that no rename takes away under the walk are all there, with what is in them.
	[ "$(cat d[67]/* | sort -u | tr -d '\n')" = content ]
	touch "$side/walked"
	wait $!
	[ "$(find . -type f | wc -l)" = $((20 * per)) ]
	# The name has gone and so have the descriptors: of a file, of one that is another's now, of
	# the working directory.
	rm d0/f7
	mv d1/f2 d1/f1
	[ "$(stat -Lc %h /dev/fd/3)" = 0 ] && [ "$(cat <&3)" = content ]
	[ "$(stat -Lc %h /dev/fd/5)" = 0 ] && [ "$(cat <&5)" = content ]
	mkdir gone
	cd gone
	rmdir ../gone
	ls -l ../d[89] >/dev/null
	[ "$(stat -c %F .)" = directory ]
	fails touch x
	cd ..
	rm -rf d2 d3
	[ "$(find . -type f | wc -l)" = $((18 * per - 2)) ]
	exec 3<&- 4<&- 5<&-
}
many_files_and_one_mount() {
	local pid before after
	ulimit -n 512
	"$bin/mount" "$@" "$share" "$mnt" &
	pid=$!
	for i in $(seq 50); do mountpoint -q "$mnt" && break; sleep 0.1; done
	before=$(count_fds $pid)
	export -f walk_work fails
	(cd "$mnt" && bash -ec walk_work)
	after=$(count_fds $pid)
	echo "descriptors: $before before, $after after"
	[ "$after" -gt 200 ] && [ "$after" -lt 400 ]
	for i in $(seq 20); do
		echo 2 >/proc/sys/vm/drop_caches
		after=$(count_fds $pid)
		[ "$after" -gt $((before + 16)) ] || break
		sleep 0.2
	done
	[ "$after" -le $((before + 16)) ]
	kill $pid
	wait $pid
}
# 20 folders of 1500 files: one share that is found by file handle, or, with -n, by name.
many_files() {
	local d
	export per=${FULL:+1500}
	per=${per:-300}
	for d in $(seq 0 19); do
		mkdir "$share/d$d"
		(cd "$share/d$d" && echo content | tee $(seq -f f%g $per) >/dev/null)
	done
	many_files_and_one_mount "$@"
}
# The same on a file system without file handles: the server below is a FUSE mount.
many_files_on_fuse() {
	mkdir "$side/lower"
	"$bin/mount" -t 2 "$side/lower" "$share" &
	local below=$!
	for i in $(seq 50); do mountpoint -q "$share" && break; sleep 0.1; done
	many_files "$@"
	kill $below
	wait $below
}
