/*
 * Static helper of the guest suites, on both sides.
 *	tool gen MIB		a reproducible stream on standard output
 *	tool verify MIB		reads it back: "intact" and 0, or where it differs and 1
 *	tool initrd MIB		a newc archive with this program as /init and MIB of the stream behind it
 * As process 1 (the /init of such an archive) it compares the initrd that the kernel kept
 * (/sys/firmware/initrd, with retain_initrd) with the stream, says so on the console, and powers off.
 *
 * The stream's bytes are the body of a FIFO entry: the kernel skips an entry whose body has no place, so
 * even an initrd that fills most of the memory can be tested.  A folder's name says how long it is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define BLOCK 65536

static uint64_t state;

/* xorshift64: period 2^64 - 1, no two blocks alike. */
static void next_block(uint64_t *block)
{
	for (unsigned i = 0; i < BLOCK / 8; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		block[i] = state;
	}
}

static int write_all(const void *p, size_t len)
{
	const char *from = p;

	while (len > 0) {
		ssize_t n = write(1, from, len);

		if (n <= 0)
			return 1;
		from += n;
		len -= (size_t)n;
	}
	return 0;
}

static size_t read_all(int fd, void *p, size_t len)
{
	size_t got = 0;
	ssize_t n;

	while (got < len && (n = read(fd, (char *)p + got, len - got)) > 0)
		got += (size_t)n;
	return got;
}

static int gen(uint64_t mib)
{
	static uint64_t block[BLOCK / 8];

	state = 88172645463325252ULL;
	for (uint64_t i = 0; i < mib << 20; i += BLOCK) {
		next_block(block);
		if (write_all(block, BLOCK))
			return 1;
	}
	return 0;
}

/* 0 when exactly mib MiB of the stream come from fd (at_end: and nothing after them). */
static int verify(int fd, uint64_t mib, int at_end)
{
	static uint64_t want[BLOCK / 8], got[BLOCK / 8];

	state = 88172645463325252ULL;
	for (uint64_t i = 0; i < mib << 20; i += BLOCK) {
		size_t n = read_all(fd, got, BLOCK);

		next_block(want);
		if (n != BLOCK || memcmp(want, got, BLOCK) != 0) {
			printf("differs in the block at %" PRIu64 " (%zu bytes read)\n", i, n);
			return 1;
		}
	}
	if (at_end && read_all(fd, got, 1) != 0) {
		printf("longer than %" PRIu64 " MiB\n", mib);
		return 1;
	}
	return 0;
}

static void entry(const char *name, unsigned mode, uint64_t size)
{
	char header[128];
	int n = snprintf(header, sizeof(header),
			 "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 1, mode, 0, 0, 1, 0,
			 (unsigned)size, 0, 0, 0, 0, (unsigned)strlen(name) + 1, 0);
	size_t len = (size_t)n + strlen(name) + 1, pad = (4 - len % 4) % 4;

	write_all(header, (size_t)n);
	write_all(name, strlen(name) + 1);
	write_all("\0\0\0", pad);
}

static int initrd(uint64_t mib)
{
	static char self[4 << 20];
	int fd = open("/proc/self/exe", O_RDONLY);
	size_t len = read_all(fd, self, sizeof(self));
	char name[32];

	entry("init", S_IFREG | 0755, len);
	write_all(self, (len + 3) / 4 * 4);
	/* The console must exist before /init runs. */
	entry("dev", S_IFDIR | 0755, 0);
	snprintf(name, sizeof(name), "stream-%" PRIu64, mib);
	entry(name, S_IFDIR | 0755, 0);
	entry("body", S_IFIFO | 0600, mib << 20);
	if (gen(mib))
		return 1;
	entry("TRAILER!!!", 0, 0);
	return 0;
}

static uint64_t stream_mib(void)
{
	for (uint64_t mib = 1; mib <= 4096; mib++) {
		char name[32];

		snprintf(name, sizeof(name), "/stream-%" PRIu64, mib);
		if (access(name, F_OK) == 0)
			return mib;
	}
	return 0;
}

/* Bytes of a newc header with this name, padding included. */
static off_t header_len(const char *name)
{
	return (off_t)((110 + strlen(name) + 1 + 3) / 4 * 4);
}

static int as_init(void)
{
	uint64_t mib = stream_mib();
	struct sysinfo info;
	struct stat st;
	char name[32];
	int fd;

	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	fd = open("/dev/console", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sysinfo(&info);
	printf("memory %llu MiB\n", (unsigned long long)info.totalram * info.mem_unit >> 20);
	stat("/init", &st);
	snprintf(name, sizeof(name), "stream-%" PRIu64, mib);
	fd = open("/sys/firmware/initrd", O_RDONLY);
	lseek(fd, header_len("init") + (st.st_size + 3) / 4 * 4 + header_len("dev") + header_len(name) +
			  header_len("body"), SEEK_SET);
	if (fd < 0 || mib == 0)
		printf("no initrd kept by this kernel\n");
	else if (verify(fd, mib, 0) == 0)
		printf("initrd intact: %" PRIu64 " MiB\n", mib);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}

int main(int argc, char **argv)
{
	uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	if (getpid() == 1)
		return as_init();
	if (argc == 3 && strcmp(argv[1], "gen") == 0)
		return gen(mib);
	if (argc == 3 && strcmp(argv[1], "initrd") == 0)
		return initrd(mib);
	if (argc == 3 && strcmp(argv[1], "verify") == 0 && verify(0, mib, 1) == 0) {
		printf("intact\n");
		return 0;
	}
	return 1;
}
