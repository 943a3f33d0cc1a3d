#!/bin/sh
# Fetches stock Debian kernels, to be booted as guests (and as the test host's own kernel).
#
# Usage:    kernels.sh [NAME...]      names as in the table below; without one, the first four
#           kernels.sh --list
# Inputs:   Debian packages, verified by apt, from the machine's own mirrors (see apt.sh).
# Outputs:  build/kernels/NAME/boot/vmlinuz-VERSION
#           build/kernels/NAME/lib/modules/VERSION/  with modules.dep made
#           build/kernels/NAME/version               the VERSION in one line
#           A folder that exists is complete and is left alone; delete it to fetch it again.
# Needs:    apt, dpkg, kmod, flock; not root.
set -eu

#       name              suite               arch  package
table='	bookworm-cloud    bookworm            amd64 linux-image-cloud-amd64
	bookworm-generic  bookworm            amd64 linux-image-amd64
	backports-cloud   bookworm-backports  amd64 linux-image-cloud-amd64
	backports-generic bookworm-backports  amd64 linux-image-amd64
	trixie-cloud      trixie              amd64 linux-image-cloud-amd64
	trixie-generic    trixie              amd64 linux-image-amd64
	sid-cloud         sid                 amd64 linux-image-cloud-amd64
	arm64-bookworm-cloud    bookworm            arm64 linux-image-cloud-arm64
	arm64-backports-cloud   bookworm-backports  arm64 linux-image-cloud-arm64
	arm64-backports-generic bookworm-backports  arm64 linux-image-arm64
	arm64-backports-16k     bookworm-backports  arm64 linux-image-arm64-16k
	arm64-trixie-cloud      trixie              arm64 linux-image-cloud-arm64
	arm64-sid-cloud         sid                 arm64 linux-image-cloud-arm64'

here=$(cd "$(dirname "$0")" && pwd -P)
build=$(dirname "$here")/build
cache=$build/cache
tmp=
# shellcheck source-path=SCRIPTDIR source=apt.sh disable=SC1091
. "$here/apt.sh"

# The packages to unpack: the real kernel packages that the metapackage $1 leads to.  Newer suites
# split them, so follow every dependency whose name carries a version.
kernel_packages() {
	apt-cache depends --recurse --no-pre-depends --no-recommends --no-suggests --no-conflicts \
		--no-breaks --no-replaces --no-enhances "$1" |
		sed -n 's/^  Depends: //p' | sort -u |
		grep -E '^linux-(image|modules|binary|base)-[0-9]'
}

# fetch NAME SUITE ARCH PACKAGE
fetch() {
	apt_root "$2" "$3"
	packages=$(kernel_packages "$4")
	[ -n "$packages" ] || { echo "$0: no kernel found behind $4 in $2" >&2; return 1; }
	tmp=$build/kernels/.$1.tmp
	rm -rf "$tmp"
	mkdir -p "$tmp/debs" "$tmp/tree"
	# shellcheck disable=SC2086	# a list of package names
	(cd "$tmp/debs" && apt-get -qq download $packages)
	for deb in "$tmp"/debs/*.deb; do
		dpkg-deb -x "$deb" "$tmp/tree"
	done
	cd "$tmp/tree"
	rm -rf usr/share
	if [ ! -d lib/modules ]; then
		mkdir -p lib
		mv usr/lib/modules lib/modules
	fi
	for v in lib/modules/*; do version=${v##*/}; done
	for f in vmlinuz config; do	# newer suites keep them with the modules
		if [ -e "lib/modules/$version/$f" ]; then
			mkdir -p boot
			mv "lib/modules/$version/$f" "boot/$f-$version"
		fi
	done
	[ -e "boot/vmlinuz-$version" ] || {
		echo "$0: no boot/vmlinuz-$version in $packages" >&2
		return 1
	}
	depmod -b "$tmp/tree" "$version"
	echo "$version" >version
	cd "$build"
	mv "$tmp/tree" "$build/kernels/$1"
	rm -rf "$tmp"
	echo "$1: $version"
}

if [ "${1-}" = --list ]; then
	echo "$table" | awk '{ print $1 }'
	exit
fi
[ $# -gt 0 ] || set -- bookworm-cloud bookworm-generic backports-cloud backports-generic

missing=
for name; do
	echo "$table" | awk -v n="$name" '$1 == n { found = 1 } END { exit !found }' || {
		echo "$0: unknown kernel '$name'; known: $("$0" --list | tr '\n' ' ')" >&2
		exit 2
	}
	[ -d "$build/kernels/$name" ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

mkdir -p "$cache" "$build/kernels"
exec 9>"$cache/lock"
flock 9
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
for name in $missing; do
	[ -d "$build/kernels/$name" ] && continue	# another run made it meanwhile
	# shellcheck disable=SC2046	# one table row, split into words
	fetch $(echo "$table" | awk -v n="$name" '$1 == n')
done
