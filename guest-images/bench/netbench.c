/*
 * The guest and the host of bench-net, one static program.
 *	netbench serve PORT	on the host: a thread for each connection, see below
 * As process 1 of an initramfs: loads the files of /modules in order, gives eth0 its address, and goes through the
 * cases with the host at 10.9.0.1, a line each on the console:
 *	case DIRECTION SESSIONS SIZE bytes N ns N busy N
 *	case rr 1 1 bytes N ns N busy N
 * bytes as the receiver counted them (rr: exchanges), busy: ticks of all the host's CPUs meanwhile.  The
 * kernel's command line may say seconds=N and pairs=N.
 *
 * A connection begins with one byte:
 *	S	the client sends until it shuts down; the answer is the number of bytes, 8 of them
 *	G	the server sends, in pieces of the 4 bytes that follow, until the client has enough
 *	R	every byte is answered with a byte
 *	B	the answer is the number of busy ticks so far, 8 bytes
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HOST	  "10.9.0.1"
#define PORT	  5401
#define PIECE_MAX (128u << 10)
#define SESSIONS  16

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int read_full(int fd, void *p, size_t len)
{
	return recv(fd, p, len, MSG_WAITALL) == (ssize_t)len ? 0 : -1;
}

/* --- the host ---------------------------------------------------------------------------------- */

/* user, nice, system, irq, softirq; guest time is in user's. */
static uint64_t busy_ticks(void)
{
	unsigned long long v[7] = { 0 };
	FILE *f = fopen("/proc/stat", "r");
	int n = f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
			   &v[5], &v[6])
		  : 0;

	if (f)
		fclose(f);
	return n == 7 ? v[0] + v[1] + v[2] + v[5] + v[6] : 0;
}

static uint64_t take_all(int fd)
{
	static _Thread_local char buf[PIECE_MAX];
	uint64_t total = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		total += (uint64_t)n;
	return total;
}

static void give(int fd)
{
	static const char data[PIECE_MAX];
	uint32_t size;

	if (read_full(fd, &size, sizeof(size)) || size > sizeof(data))
		return;
	while (write(fd, data, size) > 0)
		;
}

static void answer(int fd)
{
	char c;

	while (read(fd, &c, 1) == 1 && write(fd, &c, 1) == 1)
		;
}

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg, one = 1;
	uint64_t number;
	char what;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (read(fd, &what, 1) == 1) {
		number = what == 'B' ? busy_ticks() : what == 'S' ? take_all(fd) : 0;
		if (what == 'G')
			give(fd);
		else if (what == 'R')
			answer(fd);
		else
			(void)!write(fd, &number, sizeof(number));
	}
	close(fd);
	return NULL;
}

static int serve(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64))
		return 1;
	for (;;) {
		int c = accept(fd, NULL, NULL);
		pthread_t thread;

		if (c >= 0 && pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)c) == 0)
			pthread_detach(thread);
	}
}

/* --- the guest --------------------------------------------------------------------------------- */

static unsigned seconds = 1;

static int call(char what)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	inet_pton(AF_INET, HOST, &a.sin_addr);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) || write(fd, &what, 1) != 1) {
		close(fd);
		return -1;
	}
	return fd;
}

static uint64_t host_busy(void)
{
	int fd = call('B');
	uint64_t n = 0;

	(void)read_full(fd, &n, sizeof(n));
	close(fd);
	return n;
}

struct session {
	pthread_t thread;
	char kind;
	uint32_t size;
	int64_t end_ns;
	uint64_t bytes;
};

static void *session_main(void *arg)
{
	static const char data[PIECE_MAX];
	char *buf = malloc(PIECE_MAX);
	struct session *s = arg;
	int fd = call(s->kind);
	ssize_t n = 1;
	char c = 0;

	if (s->kind == 'G')
		(void)!write(fd, &s->size, sizeof(s->size));
	while (fd >= 0 && n > 0 && now_ns() < s->end_ns) {
		if (s->kind == 'S') {
			n = write(fd, data, s->size);
		} else if (s->kind == 'G') {
			n = read(fd, buf, PIECE_MAX);
			s->bytes += n > 0 ? (uint64_t)n : 0;
		} else {
			n = write(fd, &c, 1) == 1 ? read(fd, &c, 1) : 0;
			s->bytes += n == 1;
		}
	}
	if (s->kind == 'S') {
		shutdown(fd, SHUT_WR);
		(void)read_full(fd, &s->bytes, sizeof(s->bytes));
	}
	close(fd);
	free(buf);
	return NULL;
}

static void measure(const char *name, char kind, unsigned n, uint32_t size)
{
	struct session s[SESSIONS];
	uint64_t busy = host_busy(), bytes = 0;
	int64_t start = now_ns(), took;

	for (unsigned i = 0; i < n; i++) {
		s[i] = (struct session){ .kind = kind, .size = size,
					 .end_ns = start + (int64_t)seconds * 1000000000 };
		pthread_create(&s[i].thread, NULL, session_main, &s[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(s[i].thread, NULL);
		bytes += s[i].bytes;
	}
	took = now_ns() - start;
	printf("case %s %u %u bytes %llu ns %lld busy %llu\n", name, n, size, (unsigned long long)bytes,
	       (long long)took, (unsigned long long)(host_busy() - busy));
}

static void cases(void)
{
	static const unsigned sessions[] = { 1, 4, 16 }, sizes[] = { 1024, 16384, 131072 };

	measure("warm-up", 'S', 1, 16384);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < 3; k++) {
			measure("out", 'S', sessions[i], sizes[k]);
			measure("in", 'G', sessions[i], sizes[k]);
		}
	}
	measure("rr", 'R', 1, 1);
}

static void load_modules(void)
{
	struct dirent **list;
	char path[300];
	int n = scandir("/modules", &list, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/modules/%s", list[i]->d_name);
		if (list[i]->d_name[0] != '.' &&
		    syscall(SYS_finit_module, open(path, O_RDONLY), "", 0) && errno != EEXIST)
			printf("%s: %s\n", path, strerror(errno));
	}
}

static unsigned wanted(const char *key, unsigned otherwise)
{
	char line[4096] = "", *at;
	int fd = open("/proc/cmdline", O_RDONLY);

	(void)!read(fd, line, sizeof(line) - 1);
	close(fd);
	at = strstr(line, key);
	return at ? (unsigned)atoi(at + strlen(key)) : otherwise;
}

static void set_address(struct ifreq *ifr, const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	inet_pton(AF_INET, address, &a.sin_addr);
	memcpy(&ifr->ifr_addr, &a, sizeof(a));
}

static int network(unsigned pairs)
{
	struct ethtool_channels ch = { .cmd = ETHTOOL_SCHANNELS, .combined_count = pairs };
	struct ifreq ifr = { .ifr_name = "eth0" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), try;

	set_address(&ifr, "10.9.0.2");
	if (ioctl(fd, SIOCSIFADDR, &ifr))
		return -1;
	set_address(&ifr, "255.255.255.0");
	ioctl(fd, SIOCSIFNETMASK, &ifr);
	ifr.ifr_flags = IFF_UP;
	ioctl(fd, SIOCSIFFLAGS, &ifr);
	ifr.ifr_data = (char *)&ch;
	if (ioctl(fd, SIOCETHTOOL, &ifr) && pairs > 1)
		printf("no %u pairs: %s\n", pairs, strerror(errno));
	for (try = 0; try < 50 && host_busy() == 0; try++)
		usleep(100000);
	return try < 50 ? 0 : -1;
}

static int as_init(void)
{
	mkdir("/proc", 0755);
	mkdir("/dev", 0755);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	for (int i = 0, fd = open("/dev/console", O_RDWR); i < 3; i++)
		dup2(fd, i);
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_modules();
	seconds = wanted("seconds=", 1);
	if (network(wanted("pairs=", 1)))
		printf("no network\n");
	else
		cases();
	printf("end of cases\n");
	reboot(RB_POWER_OFF);
	return 1;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (getpid() == 1)
		return as_init();
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	fprintf(stderr, "usage: netbench serve PORT\n");
	return 1;
}
