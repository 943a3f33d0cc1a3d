#!/bin/sh
# heddle.1, README.md and --help name the same options and exit codes.  usage: docs.sh HEDDLE
set -u
heddle=$1
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0

check() { # what, condition's exit code
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAIL docs: $1"
	fi
}

help=$("$heddle" --help)
options=$(printf '%s\n' "$help" | grep -oE -- '--[a-z][a-z-]+' | sort -u)
for o in $options; do
	man_form=$(printf '%s' "$o" | sed 's/-/\\\\-/g')
	grep -qE -- "(^|[^a-z-])$man_form([^a-z\\\\-]|\$)" heddle.1
	check "$o is in --help but not in heddle.1" $?
	grep -qE -- "(^|[^a-z-])$o([^a-z-]|\$)" README.md
	check "$o is in --help but not in README.md" $?
done
# The other direction: nothing is promised that does not exist.
for o in $(sed 's/\\-/-/g' heddle.1 | grep -E '^\.(TP|B|BR|IP)|^\.BI' | grep -oE -- '--[a-z][a-z-]+' | sort -u); do
	printf '%s\n' "$options" | grep -qx -- "$o"
	check "$o is in heddle.1 but not in --help" $?
done
# Keys of device options, in the part of the manual that is about the option.
# shellcheck disable=SC2086 # sources: a list of files
for pair in net:devices/net_opts.c fs:devices/share.c:devices/fuse/choices.h; do
	option=${pair%%:*}
	sources=$(printf '%s' "${pair#*:}" | tr ':' ' ')
	part=$(sed 's/\\-/-/g' heddle.1 | awk -v o="--$option" '/^\.BR --/ { in_it = $2 == o } in_it')
	keys=$(grep -ohE '(\.name = |\{ )"[a-z0-9_-]+"' $sources | grep -oE '"[a-z0-9_-]+"' | tr -d '"' | sort -u)
	[ "$(printf '%s\n' "$keys" | wc -l)" -ge 5 ]
	check "keys of --$option are found in $sources" $?
	for key in $keys; do
		# What takes a value stands there as KEY=.
		tail='([^a-z0-9_-]|$)'
		! grep -qE "\.name = \"$key\", \.kind = OPT_(UINT|STRING|SIZE|CALL)" $sources || tail='='
		printf '%s\n' "$part" | grep -qE "(^|[^a-z0-9_-])$key$tail"
		check "key $key of --$option is not in its part of heddle.1" $?
	done
done
for code in 122 123 124 125 126 127; do
	printf '%s\n' "$help" | grep -q "^  $code " && grep -q "$code" heddle.1 && grep -q "| $code" README.md
	check "exit code $code stands in --help, heddle.1 and README.md" $?
done
echo "docs: $passed passed, $failed failed"
mkdir -p build/results
echo "$passed $failed 0" >build/results/docs
[ "$failed" -eq 0 ]
