#!/bin/sh
# Installs the Debian packages that building and testing heddle need; silent when all are there.
set -eu
cd "$(dirname "$0")/.."
packages='gcc libc6-dev make pkg-config musl-tools acpica-tools libkmod-dev libzstd-dev liblzma-dev
	zlib1g-dev check clang clang-tidy clang-format libclang-rt-14-dev bsdutils git sqlite3 e2fsprogs
	acl attr libcap2-bin'
missing=
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
if [ -n "$missing" ]; then
	echo "installing:$missing"
	apt-get -qq update
	# shellcheck disable=SC2086 # a list of package names
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $missing >/dev/null
fi
tests/testbed/setup.sh
