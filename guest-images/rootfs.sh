#!/bin/sh
# Makes a small Debian tree: the root of test guests, and the base of the test host's image.
#
# Usage:    rootfs.sh DIR [PACKAGE...]     PACKAGEs are added to the list below
# Inputs:   Debian packages from the machine's own mirrors (see apt.sh); SUITE from the environment
#           (default bookworm).
# Outputs:  DIR, the tree, and DIR.key, which names what it was made from.  A DIR whose key
#           still fits is left alone, another is replaced.  Packages stay in build/cache/debs.
# Needs:    root (the tree holds files of several owners), mmdebstrap, flock.
set -eu

# Tools first, then the libraries heddle is linked with.
packages='gcc libc6-dev make musl-tools mount iproute2 procps kmod strace
	libseccomp2 libkmod2 zlib1g liblzma5 libzstd1 liblz4-1 libfdt1 libjson-c5 liburing2
	libcap-ng0'

[ $# -gt 0 ] || { echo "usage: $0 DIR [PACKAGE...]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd -P)
build=$(dirname "$here")/build
cache=$build/cache
suite=${SUITE:-bookworm}
mkdir -p "$(dirname "$1")"
dir=$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")
shift
# shellcheck disable=SC2086	# a list of package names
packages=$(printf '%s\n' $packages "$@" | sort -u | paste -sd,)
key="$suite $packages $(sed '/^#/d' "$0" | cksum)"

fits() { [ -d "$dir" ] && [ "$(cat "$dir.key" 2>/dev/null)" = "$key" ]; }

fits && exit
[ "$(id -u)" = 0 ] || { echo "$0: must be run as root" >&2; exit 1; }
# shellcheck source-path=SCRIPTDIR source=apt.sh disable=SC1091
. "$here/apt.sh"
mkdir -p "$cache/debs"
exec 9>"$cache/rootfs.lock"
flock 9
fits && exit
tmp=$dir.tmp
rm -rf "$tmp" "$cache/rootfs-sources"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
apt_sources "$suite" "$cache/rootfs-sources"

# The .debs go in and out as hard links, so a second tree downloads nothing.
export DEBS="$cache/debs"
# shellcheck disable=SC2016	# the hooks expand these themselves
mmdebstrap --quiet --variant=apt --mode=root --include="$packages" \
	--aptopt='APT::Install-Recommends "false"' \
	--aptopt='Acquire::Languages "none"' \
	--dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/info/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--skip=essential/unlink \
	--setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
	--setup-hook='cp -l "$DEBS"/*.deb "$1/var/cache/apt/archives/" 2>/dev/null || :' \
	--customize-hook='cp -ln "$1"/var/cache/apt/archives/*.deb "$DEBS/" || :' \
	"$suite" "$tmp" "$cache"/rootfs-sources/*
rm -rf "$dir" "$dir.key"
mv "$tmp" "$dir"
echo "$key" >"$dir.key"
