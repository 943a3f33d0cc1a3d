/*
 * Static helper of the network suites, on both sides.
 *	nettool flood ADDR PORT		small UDP frames, for ever; bursts with pauses, so that others run too
 *	nettool stray MIB SECONDS	fills memory and looks again and again whether somebody else wrote to it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BURST	 32
#define PAUSE_US 10000

static int flood(const char *addr, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char data[18] = "heddle";

	if (fd < 0 || inet_pton(AF_INET, addr, &to.sin_addr) != 1)
		return 1;
	for (;;) {
		for (unsigned i = 0; i < BURST; i++)
			(void)!sendto(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
		usleep(PAUSE_US);
	}
}

static int stray(uint64_t mib, time_t seconds)
{
	const uint64_t n = (mib << 20) / sizeof(uint64_t);
	uint64_t *p = malloc(n * sizeof(*p));
	time_t end = time(NULL) + seconds;

	if (!p)
		return 1;
	for (uint64_t i = 0; i < n; i++)
		p[i] = i * 0x9e3779b97f4a7c15;
	do {
		for (uint64_t i = 0; i < n; i++) {
			if (p[i] != i * 0x9e3779b97f4a7c15) {
				printf("changed at %llu\n", (unsigned long long)i * sizeof(*p));
				return 1;
			}
		}
	} while (time(NULL) < end);
	printf("intact\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "flood") == 0)
		return flood(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "stray") == 0)
		return stray(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	return 1;
}
