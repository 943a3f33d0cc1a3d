/*
 * Static helper of the network suites, on both sides.
 *	nettool flood ADDR PORT		small UDP frames, for ever; bursts with pauses, so that others run too
 *	nettool stray MIB SECONDS	fills memory and looks again and again whether somebody else wrote to it
 *	nettool xdp IFACE COMMAND...	runs COMMAND with an XDP program on IFACE that passes and counts all frames;
 *					its exit code, or 1 when the program saw none
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static long bpf(int cmd, union bpf_attr *a)
{
	return syscall(SYS_bpf, cmd, a, sizeof(*a));
}

#define INSN(c, d, s, o, i) { .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) }

/* One number; the program adds to it and passes the frame. */
static int load_counter(int map)
{
	const struct bpf_insn prog[] = {
		INSN(BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4),
		INSN(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
		INSN(0, 0, 0, 0, 0), /* the upper half */
		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
		INSN(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 2, 0),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, 1),
		INSN(BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_0, BPF_REG_1, 0, BPF_ADD),
		INSN(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS),
		INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	union bpf_attr a = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.insn_cnt = sizeof(prog) / sizeof(*prog),
		.insns = (uintptr_t)prog,
		.license = (uintptr_t) "GPL",
	};

	return (int)bpf(BPF_PROG_LOAD, &a);
}

static int xdp(const char *iface, char **command)
{
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1
	};
	union bpf_attr link = { 0 }, look = { 0 };
	uint64_t frames = 0;
	uint32_t key = 0;
	int status = 0, map_fd = (int)bpf(BPF_MAP_CREATE, &map);
	pid_t pid;

	link.link_create.prog_fd = (uint32_t)load_counter(map_fd);
	link.link_create.target_ifindex = if_nametoindex(iface);
	link.link_create.attach_type = BPF_XDP;
	/* It lasts as long as this process. */
	if (bpf(BPF_LINK_CREATE, &link) < 0) {
		perror("XDP");
		return 1;
	}
	pid = fork();
	if (pid == 0) {
		execvp(command[0], command);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	look.map_fd = (uint32_t)map_fd;
	look.key = (uintptr_t)&key;
	look.value = (uintptr_t)&frames;
	bpf(BPF_MAP_LOOKUP_ELEM, &look);
	printf("XDP passed %llu frames\n", (unsigned long long)frames);
	return frames > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "xdp") == 0)
		return xdp(argv[2], argv + 3);
	if (argc == 4 && strcmp(argv[1], "flood") == 0)
		return flood(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "stray") == 0)
		return stray(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	return 1;
}
