#!/bin/sh
# Installs the Debian packages that the test host and guest-images/ need; skips those present.
#
# Usage:    setup.sh      (as root, when something is missing)
# Inputs:   the list below.
# Outputs:  installed packages.
set -eu

packages='qemu-system-x86 qemu-system-common seabios mmdebstrap e2fsprogs busybox-static cpio kmod
	xz-utils zstd gcc libc6-dev musl-tools'

missing=
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] ||
		missing="$missing $p"
done
[ -n "$missing" ] || exit 0
apt-get -qq update
# shellcheck disable=SC2086	# a list of package names
DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $missing
