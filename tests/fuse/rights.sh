# Tests of run.sh about rights, owners, attributes and writing; sourced by it after cases.sh.

# --- the suite with other choices -----------------------------------------------------------------

# With writeback no holes are known, and blocks are counted late.
posix_writeback() {
	on "$@" -o writeback -- "$bin/posix" -x data-holes -o "$side" "$mnt"
}

# The guest's ids are others on the host, and it cannot tell.
posix_mapped() {
	local map=0:1000000:65536+4294967294:2000000:1
	chown 1000000:1000000 "$share"
	echo x >"$share/of-the-host"
	touch "$share/of-root"
	chown 1000000:1001000 "$share/of-root"
	on "$@" -o "uid-map=$map,gid-map=$map" -- sh -ec "
		[ \$(stat -c %u:%g '$mnt/of-the-host') = 4294967294:4294967294 ]
		[ \$(stat -c %u:%g '$mnt/of-root') = 0:1000 ]
		touch '$mnt/kept'
		chown 5:6 '$mnt/kept'
		! chown 70000 '$mnt/kept' 2>/dev/null
		exec '$bin/posix' -x setid-,device-nodes,special -o '$side' '$mnt'"
	[ "$(stat -c %u:%g "$share/kept")" = 1000005:1000006 ]
}

# What needs no other users works as on a local file system when the server is one of them.
posix_squashed() {
	chown 1000:1000 "$share"
	chmod 700 "$share"
	on "$@" -u 1000 -o squash=0:0,xattr=user -- sh -c "
		'$bin/posix' -k data- -o '$side' '$mnt' && '$bin/posix' -k dir- -o '$side' '$mnt'"
}

# --- owners ---------------------------------------------------------------------------------------

owners_work() {
	mkdir -m 700 pg
	[ "$(stat -c %u pg)" = "$1" ]
	! chown 999:999 pg
	[ "$(stat -c %u:%g pg)" = "$1:$1" ]
	chown "$1:$1" pg
	touch pg/file
	[ "$(stat -c %u pg/file)" = "$1" ]
	echo x >foreign && return 1
	! chmod 600 foreign
	! rm sticky/other
	ln pg/file pg/link
	mkdir -m 1777 mine
	setpriv --reuid 1001 --clear-groups sh -c '! touch pg/x && : >mine/theirs'
	! setpriv --reuid 1002 --clear-groups rm -f mine/theirs
	[ -e mine/theirs ]
}
owners_part() {
	export -f owners_work
	on "$@" -- bash -ec "cd '$mnt' && owners_work $shown"
}
# A server without privileges: a change of owner has its effect or fails, and so has all else.
owners_of_a_user() {
	local choice
	mkdir "$share/sticky"
	touch "$share/sticky/other" "$share/foreign"
	chmod 644 "$share/foreign"
	chmod 1777 "$share/sticky"
	chown 1000:1000 "$share"
	for choice in acl squash=0:0 squash=7:7 uid-map=0:1000:1,gid-map=0:1000:1; do
		shown=1000
		case $choice in squash=7*) shown=7 ;; *=0:*) shown=0 ;; esac
		case $choice in
		uid-map*) on "$@" -u 1000 -o "$choice" -- bash -ec "
				cd '$mnt' && mkdir pg && [ \$(stat -c %u:%g pg) = 0:0 ] && chown 0:0 pg
				! chown 999 pg
				! setpriv --reuid 1001 --clear-groups mkdir x" ;;
		*) owners_part "$@" -u 1000 -o "$choice" ;;
		esac
		[ "$(stat -c %u "$share/pg")" = 1000 ]
		rm -rf "$share/pg" "$share/mine"
	done
}

refused() {
	local out
	out=$("$bin/mount" "$@" "$share" "$mnt" true 2>&1) && return 1
	echo "$out"
	[ "$(printf '%s\n' "$out" | wc -l)" = 1 ]
}
choices_refused() {
	refused -o acl,uid-map=0:0:10
	refused -o acl,squash=0:0
	refused -o acl,xattr=off
	refused -o security-labels,xattr=off
	refused -c none -o writeback
	refused -o uid-map=0:0:10+5:100:1
	refused -o xattr=some
	! mountpoint -q "$mnt"
}

# --- ACLs and attributes --------------------------------------------------------------------------

acl_script() {
	umask 027
	mkdir d plain
	touch d/before
	setfacl -m u:1000:rwx,g:2000:r-x,m::rwx d
	setfacl -d -m u:1000:rw,g:2000:r,o::r,m::rw d
	touch d/file
	mkdir d/sub
	mknod d/fifo p
	(umask 077 && touch d/masked plain/masked && mkdir d/sub/deep)
	ln -s file d/link
	chmod 640 d/file
	chmod 755 plain
	touch plain/f
	chown 1000:1000 plain/f
	setfacl -m u:1001:r plain/f
	chmod 2770 plain/f
	setpriv --reuid 1000 --regid 3000 --clear-groups setfacl -m u:1002:r plain/f
	stat -c '%n %A %u:%g' plain/f
	getfacl -nR d plain
	setfacl -b d/file
	chmod u+s d/file
	chown 1001 d/file
	getfacl -n d/file
	setpriv --reuid 1000 --clear-groups sh -c 'cat d/before; ls d; echo x >d/masked'
	setpriv --reuid 1005 --clear-groups ls d || echo denied
	setfacl -k d
	touch d/last
	getfacl -n d d/last
	cp -a d/masked copied
	getfacl -n copied
	getfattr -d -m - d d/sub | grep -v '^#' | sort
}
acls_as_on_a_local_one() {
	mkdir "$side/oracle" "$share/d0"
	export -f acl_script
	(cd "$side/oracle" && bash -c acl_script) >"$side/want" 2>&1
	grep -q 'default:user:1000' "$side/want" || { echo "no ACLs here"; return 77; }
	on "$@" -o acl -- bash -c "cd '$mnt' && acl_script" >"$side/got" 2>&1
	diff "$side/want" "$side/got"
	grep -q 'user:1000:rwx' "$side/got"
	(cd "$share" && getfacl -nR d plain) | grep -q 'user:1000:rwx'
}

says_unsupported() {
	local out
	out=$("$@" 2>&1) && return 1
	echo "$out" | grep -q 'Operation not supported'
}
xattr_on_work() {
	touch f
	setfattr -n user.a -v 1 f
	setfattr -n trusted.t -v 1 f
	getfattr -d -m - f | grep -q trusted.t
	says_unsupported setfacl -m u:1000:r f
	# Answered the same each time: never for good.
	says_unsupported setfacl -m u:1000:r f
	cp --preserve=all f g
	getfattr -n user.a g
}
xattr_off_work() {
	touch f
	for i in 1 2; do
		says_unsupported setfattr -n user.a -v 1 f
		says_unsupported getfattr -n user.a f
		says_unsupported setfattr -x user.a f
	done
	cp -a f g
	mv f h
	setpriv --reuid 1000 --clear-groups cat g
}
xattr_user_work() {
	touch f
	setfattr -n user.a -v 1 f
	setfattr -n trusted.t -v 1 f
	setcap cap_net_raw+ep f
	getcap f | grep -q cap_net_raw
	[ "$(getfattr -m - f | grep -c '\.[at]$')" = 2 ]
	echo x >>f
	[ -z "$(getcap f)" ]
}
xattr_choices() {
	in_mount_with() { export -f says_unsupported "${@: -1}"; in_mount "$@"; }
	in_mount_with "$@" -- xattr_on_work
	rm "$share"/*
	in_mount_with "$@" -o xattr=off -- xattr_off_work
	rm "$share"/*
	chown 1000:1000 "$share"
	in_mount_with "$@" -u 1000 -o squash=0:0,xattr=user -- xattr_user_work
	getfattr -m - "$share/f" | grep -qx user.heddle.trusted.t
}

# What an overlay's upper folder keeps of its own in trusted names, the host keeps in user names.
opaque_work() {
	mkdir -p lower/d upper work merged
	mount -t overlay heddle-test -o lowerdir=lower,upperdir=upper,workdir=work merged
	touch lower/d/hidden
	rm -r merged/d
	mkdir merged/d
	[ -z "$(ls merged/d)" ]
	umount merged
}
overlay_upper_in_user_names() {
	in_mount "$@" -o xattr=user -- opaque_work
	getfattr -n user.heddle.trusted.overlay.opaque "$share/upper/d"
	rm -rf "$share"/*
	in_mount "$@" -o xattr=user -- overlay_work
}

# --- writing --------------------------------------------------------------------------------------

append_lines() { # file, word
	awk -v w="$2" 'BEGIN { for (i = 1; i <= 5000; i++) { print w, i; fflush() } }' >>"$1"
}
lines_are_whole() { # file, word...
	local file=$1 w
	shift
	for w; do
		[ "$(grep -c "^$w [0-9]*$" "$file")" = 5000 ]
		[ "$(grep "^$w " "$file" | sort -u | wc -l)" = 5000 ]
	done
	[ "$(wc -l <"$file")" = $(($# * 5000)) ]
}
append_work() {
	echo foo >t
	echo bar >>t
	[ "$(cat t | tr '\n' ' ')" = 'foo bar ' ]
	append_lines two a &
	append_lines two b
	wait $!
	lines_are_whole two a b
}
append_with_host() {
	append_lines both guest &
	append_lines "$share/both" host
	wait $!
	sleep 1.1
	lines_are_whole both guest host
}
# No line is lost; with writeback none of the guest's.
appends() {
	export -f append_lines lines_are_whole
	in_mount "$@" -- append_work
	lines_are_whole "$share/two" a b
	in_mount "$@" -- append_with_host
	rm "$share"/*
	in_mount "$@" -o writeback -- append_work
	lines_are_whole "$share/two" a b
}

late_work() {
	dd if=/dev/urandom of=fresh bs=1k count=300 status=none
	cp fresh copied
	cmp fresh copied
	cp --sparse=always fresh copied
	cmp fresh copied
	tar -cSf t.tar fresh
	tar -df t.tar
	touch -d '2001-02-03 04:05:06' fresh
	[ "$(stat -c %Y fresh)" = "$(date -d '2001-02-03 04:05:06' +%s)" ]
	exec 3>>old
	echo late >&3
	touch -d '2002-02-03 04:05:06' old
	exec 3>&-
	chmod 400 copied
	dd if=copied of=odd bs=777 status=none
	printf X | dd of=odd bs=1 seek=5000 conv=notrunc status=none
	sync .
}
# Times that the guest sets last are the file's, on the host, too; so are bytes.
writes_back() {
	in_mount "$@" -o writeback -- late_work
	cmp "$share/fresh" "$share/copied"
	[ "$(stat -c %Y "$share/fresh")" = "$(date -d '2001-02-03 04:05:06' +%s)" ]
	[ "$(stat -c %Y "$share/old")" = "$(date -d '2002-02-03 04:05:06' +%s)" ]
	[ "$(cat "$share/old")" = late ]
	[ "$(cmp -l "$share/odd" "$share/copied" | wc -l)" -le 1 ]
	[ "$(stat -c %s "$share/odd")" = $((300 * 1024)) ]
	[ "$(dd if="$share/odd" bs=1 skip=5000 count=1 status=none)" = X ]
}

direct_work() {
	dd if=/dev/urandom of=f bs=64k count=16 oflag=direct status=none
	dd if=f of=g bs=64k iflag=direct status=none
	cmp f g
	! dd if=f of=/dev/null bs=511 iflag=direct status=none
	! dd if=g of=h bs=511 oflag=direct status=none
	printf tail >>g
	dd if=g of=h bs=64k iflag=direct status=none
	cmp g h
	"$bin/posix" -k data- -o "$side" "$mnt"
}
# The host's O_DIRECT, with its alignment.
direct_io() {
	dd if=/dev/zero of="$side/probe" bs=4k count=1 oflag=direct status=none 2>/dev/null ||
		{ echo "no O_DIRECT here"; return 77; }
	in_mount "$@" -o direct-io -- direct_work
	cmp "$share/f" <(head -c 1M "$share/h")
}

# --- changes of the host --------------------------------------------------------------------------

git_edit_work() {
	cd repo
	export HOME=$side
	git status --porcelain | grep . && return 1
	echo edited >"$share/repo/a"
	mv "$share/repo/b" "$share/repo/b2"
	printf 'more\n' >>"$share/repo/dir/c"
	rm "$share/repo/d"
	sleep "$1"
	[ "$(git status --porcelain | sort | tr '\n' ,)" = ' D b, D d, M a, M dir/c,?? b2,' ]
	git diff | grep -q '^+edited'
	echo again >d
	[ "$(cat "$share/repo/d")" = again ]
}
junk_work() {
	for i in 1 2; do
		head -c 10000 /dev/zero | tr '\0' A >"$share/grows"
		sleep "$1"
		[ "$(wc -c <grows)" = 10000 ]
		: >"$share/grows"
		sleep "$1"
		truncate -s 5000 "$share/grows"
		[ -z "$(tr -d '\0' <grows)" ]
		sleep "$1"
		[ "$(tr -d '\0' <grows | wc -c)" = 0 ]
		[ "$(wc -c <grows)" = 5000 ]
	done
}
path_work() {
	mkdir -p "$share/x/y/z"
	echo 0 >"$share/x/y/z/f"
	cat x/y/z/f
	# Every folder of the path is another one by now: looked up again, never "stale".
	for i in $(seq 1 20); do
		mkdir -p "$share/n/y/z"
		echo "$i" >"$share/n/y/z/f"
		mv "$share/x" "$share/o"
		mv "$share/n" "$share/x"
		rm -rf "$share/o"
		cat x/y/z/f >/dev/null || [ ! -e "$share/x/y/z/f" ]
		ls x/y/z >/dev/null
	done
	sleep "$1"
	[ "$(cat x/y/z/f)" = 20 ]
}
# wait: how long the guest may believe what it knows.
host_edits() {
	local wait=$1
	shift
	export GIT_CONFIG_NOSYSTEM=1
	git init -q "$share/repo"
	mkdir "$share/repo/dir"
	for f in a b dir/c d; do echo "$f" >"$share/repo/$f"; done
	git -C "$share/repo" add .
	git -C "$share/repo" -c user.name=t -c user.email=t@t commit -qm t
	export -f git_edit_work junk_work path_work
	on "$@" -- bash -ec "cd '$mnt'; (git_edit_work $wait); junk_work $wait; path_work $wait"
}
# Mode "always": what the guest knows stays, what it does not know is looked at, and no path is stale.
always_work() {
	exec 3<f
	[ "$(cat f)" = old ]
	printf new >"$share/t"
	mv "$share/t" "$share/f"
	sleep 1.2
	[ "$(cat <&3)" = old ]
	[ "$(cat f)" = old ]
	echo x >"$share/unknown"
	[ "$(cat unknown)" = x ]
	rm "$share/unknown"
	echo y >again
	[ "$(cat again)" = y ]
	echo 2 >/proc/sys/vm/drop_caches
	exec 3<&-
	echo 2 >/proc/sys/vm/drop_caches
	[ "$(cat f)" = new ]
}
host_edits_always() {
	printf old >"$share/f"
	in_mount "$@" -c always -- always_work
}
