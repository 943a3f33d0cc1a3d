# shellcheck shell=sh
# Sourced by kernels.sh and rootfs.sh: a private apt that can ask any Debian suite and architecture.
#
# What it does:  derives its sources from the machine's own (one-line and deb822 files), with only
#                the suite's name changed, so mirrors, keys and proxies are the machine's, and apt
#                verifies what it fetches as always.  The system's apt state is not touched.
# Inputs:        $cache, a folder for lists and packages; machine files under /etc/apt.
# Outputs:       files under $cache; the functions below.

: "${cache:?}"

# apt_sources SUITE DIR: writes DIR/debian.list and DIR/debian.sources.
# SUITE is a release (its updates and security suites are kept) or RELEASE-backports (only that).
# Sources of other vendors are left out: they have no "main", or suites of other names.
apt_sources() {
	code=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	mkdir -p "$2"
	# shellcheck disable=SC2016	# the dollars are awk's
	map='
	function map(w) {
		if (w == code || w == "stable" || w == "oldstable" || w == "testing") return suite
		if (suite ~ /-backports$|^sid$|^unstable$|^experimental$/) return ""
		if (w ~ "^(" code "|stable|oldstable|testing)(-updates|-security)$") {
			sub(/^[a-z]+/, suite, w)
			return w
		}
		return ""
	}'
	find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.list' -type f -exec cat {} + \
		2>/dev/null | awk -v code="$code" -v suite="$1" "$map"'
	$1 == "deb" {
		for (i = 2; i <= NF && $i !~ /:\//; i++) ;
		i++
		s = map($i)
		$i = s
		if (s != "" && / main( |$)/) print
	}' >"$2/debian.list"
	# Paragraph mode: one stanza per record, one field or continuation per line.
	find /etc/apt/sources.list.d -name '*.sources' -type f -exec awk \
		-v code="$code" -v suite="$1" -v RS= -F '\n' "$map"'
	{
		out = ""; suites = ""; ok = 0
		if (tolower($0) ~ /\nenabled: *no/) next
		for (i = 1; i <= NF; i++) {
			if (tolower($i) ~ /^suites:/) {
				n = split($i, w, /[ \t]+/)
				for (j = 2; j <= n; j++) {
					s = map(w[j])
					if (s != "") suites = suites " " s
				}
				out = out "Suites:" suites "\n"
				continue
			}
			if (tolower($i) ~ /^types:/) $i = "Types: deb"
			if (tolower($i) ~ /^components:.* main( |$)/) ok = 1
			out = out $i "\n"
		}
		if (ok && suites != "") print out
	}' {} + 2>/dev/null >"$2/debian.sources"
	for f in "$2/debian.list" "$2/debian.sources"; do
		[ -s "$f" ] || rm -f "$f"
	done
	[ -e "$2/debian.list" ] || [ -e "$2/debian.sources" ] || {
		echo "$0: no Debian source for '$code' in /etc/apt to derive '$1' from" >&2
		return 1
	}
}

# apt_root SUITE ARCH: sets up the private root and its lists (not older than an hour), and
# exports APT_CONFIG, so that apt-get and apt-cache speak of that suite from then on.
# The caller holds a lock on $cache.
apt_root() {
	root=$cache/apt/$1-$2
	mkdir -p "$root/lists/partial" "$root/archives/partial"
	rm -rf "$root/sources"
	apt_sources "$1" "$root/sources"
	: >"$root/status"
	cat >"$root/apt.conf" <<-END
		#clear APT::Architectures;
		APT::Architecture "$2";
		APT::Architectures { "$2"; };
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Dir::Cache "$root";
		Dir::Cache::archives "archives";
		Dir::Cache::pkgcache "pkgcache.bin";
		Dir::Cache::srcpkgcache "srcpkgcache.bin";
		Dir::State "$root";
		Dir::State::lists "lists";
		Dir::State::status "$root/status";
		Dir::Etc::sourcelist "/dev/null";
		Dir::Etc::sourceparts "$root/sources";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
	END
	export APT_CONFIG="$root/apt.conf"
	if [ -z "$(find "$root/updated" -mmin -60 2>/dev/null)" ]; then
		apt-get -qq update
		touch "$root/updated"
	fi
}
