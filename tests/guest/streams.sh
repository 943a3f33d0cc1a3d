#!/bin/sh
# The command's streams, terminal, arguments, environment and directory.  FULL=1: 1 GiB through the pipes.
. tests/guest/lib.sh
k=backports-cloud
kernel=$(kernel $k) || { skip streams "no kernel (guest-images/kernels.sh $k)"; finish guest-streams; exit; }
base="-k $kernel -c 2 -m 512"

# shellcheck disable=SC2086
size=${FULL:+1024}
size=${size:-256}
if "$TOOL" gen "$size" | timeout -s KILL 600 "$H" $base -- cat 2>"$WORK/pipe.err" |
	"$TOOL" verify "$size" >"$WORK/pipe.out" 2>&1; then
	pass "$size MiB through standard input and output arrive intact ($(cat "$WORK/pipe.out"))"
else
	fail "$size MiB through standard input and output" "$(cat "$WORK/pipe.out")" "$WORK/pipe.err"
fi

export HEDDLE_SECRET=told
args=$(printf 'a b\n\001\377*"$')
# shellcheck disable=SC2086
got=$("$H" $base --env "X=1 2" --env SECRET_NOT_SET --cwd /usr -- \
	sh -c 'printf "%s|%s|%s|%s|%s" "$1" "$2" "$X" "$PWD" "${HEDDLE_SECRET-unset}"' sh "$args" "" 2>"$WORK/args.err")
if [ "$got" = "$args||1 2|/usr|unset" ]; then
	pass "arguments byte for byte, --env, --cwd; other variables stay outside"
else
	fail "arguments, environment, directory" "$got" "$WORK/args.err"
fi

# A slow reader of standard output does not lose a byte, and standard error is not held up by it.
# shellcheck disable=SC2086
n=$("$H" $base -- sh -c 'head -c 3000000 /dev/zero; echo done >&2' 2>"$WORK/slow.err" | (sleep 12; wc -c))
if [ "$n" -eq 3000000 ] && grep -q done "$WORK/slow.err"; then
	pass "a slow reader gets every byte"
else
	fail "a slow reader gets every byte" "$n of 3000000" "$WORK/slow.err"
fi

# A reader that goes away: the command gets a broken pipe, the run ends.
# shellcheck disable=SC2086
timeout -s KILL 60 "$H" $base -- sh -c 'yes; echo "yes ended" >&2' 2>"$WORK/epipe.err" | head -n 1 >/dev/null
says "a reader that goes away ends the writer" 'yes ended|Broken pipe' "$WORK/epipe.err"

cat >"$WORK/tty.sh" <<EOF
stty rows 33 cols 99
exec $H $base -- sh -c 'test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; exit 9'
EOF
timeout -s KILL 60 script -qec "sh $WORK/tty.sh" /dev/null >"$WORK/tty.out" 2>&1 </dev/null
code=$? name=tty
cp "$WORK/tty.out" "$WORK/tty.err"
expect "terminal: exit code" 9
says "terminal: all three streams are one" terminal "$WORK/tty.out"
says "terminal: its size" '33 99' "$WORK/tty.out"

# shellcheck disable=SC2086
printf 'echo first\necho second\n' | "$H" $base >"$WORK/shell.out" 2>"$WORK/shell.err"
says "without a command, a shell reads standard input" second "$WORK/shell.out"

printf '#!/bin/sh\nread -r line\necho "got $line"\necho o >/proc/sysrq-trigger\nsleep 60\n' >"$WORK/init"
chmod +x "$WORK/init"
echo typed >"$WORK/keys"
# shellcheck disable=SC2086
timeout -s KILL 60 "$H" $base --init "$WORK/init" <"$WORK/keys" >"$WORK/keys.out" 2>"$WORK/keys.err"
says "with --init, a file on standard input is what is typed" 'got typed' "$WORK/keys.out"
finish guest-streams
