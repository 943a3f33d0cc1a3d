/* Cases: the bytes of files, and files without names. */
#include "tests/fuse/posix.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MIB (1024 * 1024)

static char big[2 * MIB + 4096], back[2 * MIB + 4096];

/* Everything that can be asked of a descriptor whose file has no name left. */
static void use_nameless(int fd)
{
	struct timespec t[2] = { { 5, 0 }, { 6, 7 } };
	struct stat st;
	char buf[16];

	DO(write(fd, "hello", 5));
	DO(ftruncate(fd, 3));
	DO(fchmod(fd, 0604));
	DO(fchown(fd, 12, 34));
	DO(futimens(fd, t));
	DO(fsetxattr(fd, "user.a", "v", 1, 0));
	DO(fgetxattr(fd, "user.a", buf, sizeof(buf)));
	DO(fremovexattr(fd, "user.a"));
	posix_note_fstat(fd);
	CHECK(fstat(fd, &st) == 0 && st.st_mtim.tv_sec == 6 && st.st_mtim.tv_nsec == 7);
	DO(pread(fd, buf, sizeof(buf), 0));
	CHECK(!memcmp(buf, "hel", 3));
	DO(fsync(fd));
	DO(fallocate(fd, 0, 0, 100));
	posix_note_fstat(fd);
	DO(close(fd));
}

static void nameless_unlinked(void)
{
	int fd = DO_FD(open("b", O_RDWR | O_CREAT, 0644));

	DO(unlink("b"));
	use_nameless(fd);
	posix_note_stat("b");
}

static void nameless_renamed_over(void)
{
	int fd = DO_FD(open("b", O_RDWR | O_CREAT, 0644));

	make_file("a", "new content", 11, 0644);
	DO(rename("a", "b"));
	use_nameless(fd);
	CHECK(file_is("b", "new content", 11));
	posix_note_stat("b");
}

static void nameless_reopened(void)
{
	char path[64], buf[8];
	int fd = DO_FD(open("b", O_RDWR | O_CREAT, 0644)), again;

	DO(write(fd, "12345", 5));
	DO(unlink("b"));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = DO_FD(open(path, O_RDWR));
	DO(read(again, buf, 5));
	CHECK(!memcmp(buf, "12345", 5));
	DO(linkat(AT_FDCWD, path, AT_FDCWD, "back", AT_SYMLINK_FOLLOW));
	posix_note_fstat(again);
}

static void nameless_other_link(void)
{
	int fd = DO_FD(open("a", O_RDWR | O_CREAT, 0644));

	DO(link("a", "b"));
	posix_note_fstat(fd);
	DO(unlink("a"));
	posix_note_fstat(fd);
	DO(write(fd, "x", 1));
	posix_note_stat("b");
	DO(rename("b", "c"));
	DO(ftruncate(fd, 10));
	posix_note_stat("c");
}

static void tmpfile_life(void)
{
	char path[64];
	int fd = open(".", O_TMPFILE | O_RDWR, 0640);

	if (fd < 0 && errno == EOPNOTSUPP)
		posix_skip("no O_TMPFILE");
	CHECK(fd >= 0);
	posix_note_fstat(fd);
	DO(write(fd, "hello", 5));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	DO(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	posix_note_stat("named");
	CHECK(file_is("named", "hello", 5));
	close(fd);
	fd = DO_FD(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	DO(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
	DO_FD(open(".", O_TMPFILE | O_RDONLY, 0640));
	DO_FD(open("named", O_TMPFILE | O_RDWR, 0640));
}

/* --- reading and writing ---------------------------------------------------------------------- */

static void data_sizes(void)
{
	static const size_t sizes[] = { 1,       2,       4095,    4096,       4097,
					65536,   131071,  131073,  MIB - 1,    MIB,
					MIB + 1, 2091999, 2 * MIB, 2 * MIB + 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t len = sizes[i];
		int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);

		fill(big, len, (uint32_t)i);
		CHECK(write(fd, big, len) == (ssize_t)len);
		CHECK(pread(fd, back, sizeof(back), 0) == (ssize_t)len);
		CHECK(!memcmp(big, back, len));
		close(fd);
		CHECK(file_is("f", big, len));
	}
}

static void data_direct(void)
{
	static const size_t sizes[] = { 4096, 65536, MIB, 2 * MIB };
	void *p = NULL;
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644);

	if (fd < 0 && errno == EINVAL)
		posix_skip("no O_DIRECT");
	CHECK(posix_memalign(&p, 4096, 2 * MIB) == 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(p, sizes[i], (uint32_t)i + 7);
		CHECK(pwrite(fd, p, sizes[i], 8192) == (ssize_t)sizes[i]);
		memcpy(big, p, sizes[i]);
		memset(p, 0, sizes[i]);
		CHECK(pread(fd, p, sizes[i], 8192) == (ssize_t)sizes[i]);
		CHECK(!memcmp(p, big, sizes[i]));
	}
	/* The end of a file that is no multiple of anything. */
	CHECK(ftruncate(fd, 5000) == 0);
	CHECK(pread(fd, p, 8192, 4096) == 904);
	posix_note_fstat(fd);
}

static void data_vectors(void)
{
	static struct iovec v[1024];
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	fill(big, 3072, 1);
	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){ big + 3 * i, 3 };
	CHECK(writev(fd, v, 1024) == 3072);
	for (int i = 0; i < 1024; i++)
		v[i] = (struct iovec){ back + 3071 - i, 1 };
	CHECK(preadv(fd, v, 1024, 0) == 1024);
	for (int i = 0; i < 1024; i++)
		CHECK(back[3071 - i] == big[i]);
}

static void data_append(void)
{
	int a = DO_FD(open("f", O_WRONLY | O_CREAT | O_APPEND, 0644));
	int b = DO_FD(open("f", O_RDWR | O_APPEND));
	char *p;

	DO(write(a, "one ", 4));
	DO(write(b, "two ", 4));
	DO(write(a, "three ", 6));
	DO(pwrite(b, "four", 4, 0)); /* Linux: appends all the same */
	CHECK(file_is("f", "one two three four", 18));
	DO(fcntl(b, F_SETFL, 0));
	DO(pwrite(b, "ONE", 3, 0));
	CHECK(file_is("f", "ONE two three four", 18));
	DO(fcntl(b, F_SETFL, O_APPEND));
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b, 0);
	CHECK(p != MAP_FAILED);
	memcpy(p + 4, "TWO", 3);
	DO(msync(p, 4096, MS_SYNC));
	CHECK(file_is("f", "ONE TWO three four", 18));
	posix_note_fstat(a);
}

static void append_lines(int n)
{
	int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
	char line[16];

	for (int i = 0; i < 2000; i++) {
		snprintf(line, sizeof(line), "%d %5d\n", n, i);
		if (write(fd, line, 8) != 8)
			_exit(1);
	}
	_exit(0);
}

/* No line of either process is lost or torn. */
static void data_append_race(void)
{
	int next[2] = { 0 }, status, n, i;
	FILE *f;

	for (n = 0; n < 2; n++)
		if (fork() == 0)
			append_lines(n);
	while (wait(&status) > 0)
		CHECK(status == 0);
	f = fopen("log", "r");
	while (fscanf(f, "%d %d\n", &n, &i) == 2)
		CHECK(n >= 0 && n < 2 && next[n]++ == i);
	CHECK(next[0] == 2000 && next[1] == 2000);
	fclose(f);
}

static void data_truncate(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	fill(big, 10000, 3);
	CHECK(write(fd, big, 10000) == 10000);
	DO(ftruncate(fd, 5000));
	DO(ftruncate(fd, 12000));
	memset(big + 5000, 0, 7000);
	CHECK(pread(fd, back, sizeof(back), 0) == 12000 && !memcmp(big, back, 12000));
	DO(truncate("f", 1));
	posix_note_fstat(fd);
	DO(pwrite(fd, "x", 1, 8191));
	memset(big + 1, 0, 8191);
	big[8191] = 'x';
	CHECK(file_is("f", big, 8192));
	DO_FD(open("f", O_WRONLY | O_TRUNC));
	posix_note_fstat(fd);
}

static void data_sparse(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	off_t far = (off_t)1 << 40;

	DO(pwrite(fd, "end", 3, far));
	posix_note_fstat(fd);
	DO(pread(fd, back, 10, far - 2));
	CHECK(!memcmp(back, "\0\0end", 5));
	DO(lseek(fd, 0, SEEK_DATA) == far);
	DO(lseek(fd, 0, SEEK_HOLE));
	DO(lseek(fd, far, SEEK_HOLE) == far + 3);
	DO(lseek(fd, far + 3, SEEK_DATA));
	DO(lseek(fd, far + 100, SEEK_HOLE));
	DO(lseek(fd, -1, SEEK_DATA));
}

static void data_holes(void)
{
	int fd = open("dense", O_RDWR | O_CREAT, 0644);

	fill(big, 300000, 9);
	CHECK(write(fd, big, 300000) == 300000);
	/* Fresh, perhaps not yet on the host's disk. */
	DO(lseek(fd, 0, SEEK_DATA));
	DO(lseek(fd, 0, SEEK_HOLE));
	DO(lseek(fd, 150000, SEEK_DATA));
	CHECK(fsync(fd) == 0);
	DO(lseek(fd, 299999, SEEK_DATA));
	DO(lseek(fd, 300000, SEEK_DATA));
	DO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536));
	memset(big + 65536, 0, 65536);
	CHECK(file_is("dense", big, 300000));
	DO(lseek(fd, 0, SEEK_HOLE));
	DO(lseek(fd, 65536, SEEK_DATA));
	if (DO(fallocate(fd, FALLOC_FL_ZERO_RANGE, 200000, 1000)) == 0)
		memset(big + 200000, 0, 1000);
	CHECK(file_is("dense", big, 300000));
	DO(fallocate(fd, FALLOC_FL_KEEP_SIZE, 300000, 100000));
	posix_note_fstat(fd);
	DO(fallocate(fd, 0, 300000, 100000));
	posix_note_fstat(fd);
}

/* A guest that writes back late counts a file's blocks when it is closed. */
static void data_blocks(void)
{
	int fd = open("sparse", O_RDWR | O_CREAT, 0644);
	struct stat st;

	CHECK(pwrite(fd, "end", 3, (off_t)1 << 40) == 3);
	CHECK(fstat(fd, &st) == 0 && st.st_blocks > 0 && st.st_blocks < 1024);
	fd = open("dense", O_RDWR | O_CREAT, 0644);
	CHECK(write(fd, big, 300000) == 300000 && fsync(fd) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_blocks * 512 >= 300000);
}

static void data_copy_range(void)
{
	int a = open("a", O_RDWR | O_CREAT, 0644), b = open("b", O_RDWR | O_CREAT, 0644);
	off_t from = 1000, to = 5;
	size_t left = MIB;

	fill(big, MIB + 1000, 4);
	CHECK(write(a, big, MIB + 1000) == MIB + 1000);
	while (left > 0) {
		ssize_t n = copy_file_range(a, &from, b, &to, left, 0);

		CHECK(n > 0);
		if (n <= 0)
			return;
		left -= (size_t)n;
	}
	CHECK(pread(b, back, sizeof(back), 5) == MIB && !memcmp(back, big + 1000, MIB));
	posix_note_fstat(b);
	DO(copy_file_range(a, &from, b, &to, 10, 0)); /* at the end of a */
	from = 0;
	to = 0;
	DO(copy_file_range(a, &from, a, &to, 10, 0)); /* overlapping */
	CHECK(lseek(a, 0, SEEK_SET) == 0 && ftruncate(b, 0) == 0 && lseek(b, 0, SEEK_SET) == 0);
	DO(sendfile(b, a, NULL, 5000));
	CHECK(pread(b, back, sizeof(back), 0) == 5000 && !memcmp(back, big, 5000));
}

static void data_mmap(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	char *p, *q;

	CHECK(ftruncate(fd, 10000) == 0);
	p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED && errno == ENODEV)
		posix_skip("no MAP_SHARED on direct files with this kernel");
	CHECK(p != MAP_FAILED);
	fill(p, 10000, 5);
	fill(big, 10000, 5);
	CHECK(msync(p, 12288, MS_SYNC) == 0);
	CHECK(pread(fd, back, sizeof(back), 0) == 10000 && !memcmp(back, big, 10000));
	CHECK(pwrite(fd, "seen", 4, 4096) == 4 && !memcmp(p + 4096, "seen", 4));
	q = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	q[0] = 'Q';
	CHECK(p[0] == big[0]);
	CHECK(ftruncate(fd, 100) == 0 && ftruncate(fd, 5000) == 0);
	CHECK(p[99] == big[99] && p[100] == 0 && p[4096] == 0);
	close(fd);
	p[50] = 'x';
	CHECK(munmap(p, 12288) == 0);
	big[50] = 'x';
	memset(big + 100, 0, 4900);
	CHECK(file_is("f", big, 5000));
}

static void data_sync(void)
{
	int fd = open("f", O_RDWR | O_CREAT | O_SYNC, 0644);
	int r = open("f", O_RDONLY), d = open(".", O_RDONLY);

	DO(write(fd, "abc", 3));
	DO(fsync(fd));
	DO(fdatasync(fd));
	DO(fsync(r));
	DO(fsync(d));
	DO(fdatasync(d));
	DO(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
	DO(syncfs(d));
	fd = open("f", O_WRONLY | O_DSYNC | O_APPEND);
	DO(write(fd, "def", 3));
	CHECK(file_is("f", "abcdef", 6));
}

/* --- other uses of files ---------------------------------------------------------------------- */

static void lock_try(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
	int fd = open("l", O_RDWR);

	DO(flock(fd, LOCK_EX | LOCK_NB));
	DO(fcntl(fd, F_SETLK, &l));
	DO(fcntl(fd, F_GETLK, &l));
	posix_note_text("lock type %d start %lld\n", l.l_type, (long long)l.l_start);
	l = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 20, .l_len = 5 };
	DO(fcntl(fd, F_SETLK, &l));
}

static void locks(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
	int fd = open("l", O_RDWR | O_CREAT, 0666);

	CHECK(fchmod(fd, 0666) == 0);
	DO(flock(fd, LOCK_EX));
	DO(fcntl(fd, F_SETLK, &l));
	as_user(1000, lock_try);
	DO(flock(fd, LOCK_UN));
	l.l_type = F_UNLCK;
	DO(fcntl(fd, F_SETLK, &l));
	as_user(1000, lock_try);
	DO(fcntl(fd, F_OFD_SETLK, &(struct flock){ .l_type = F_RDLCK }));
}

static void fifo_and_socket(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
	int r, w;
	char buf[8];

	DO(mkfifo("fifo", 0644));
	r = DO_FD(open("fifo", O_RDONLY | O_NONBLOCK));
	w = DO_FD(open("fifo", O_WRONLY));
	DO(write(w, "hello", 5));
	DO(read(r, buf, sizeof(buf)));
	DO(bind(s, (struct sockaddr *)&a, sizeof(a)));
	DO(listen(s, 1));
	DO(connect(c, (struct sockaddr *)&a, sizeof(a)));
	posix_note_stat("sock");
	DO(bind(c, (struct sockaddr *)&a, sizeof(a)));
	DO_FD(open("sock", O_RDWR));
	DO(unlink("sock"));
}

static void copy_program(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	ssize_t n;

	while ((n = read(in, back, sizeof(back))) > 0)
		CHECK(write(out, back, (size_t)n) == n);
	close(in);
	close(out);
}

static void run_programs(void)
{
	int fd, status;

	copy_program("/bin/sleep", "prog");
	if (fork() == 0) {
		execl("./prog", "prog", "0.2", NULL);
		_exit(99);
	}
	usleep(100000);
	fd = DO_FD(open("prog", O_WRONLY)); /* busy */
	close(fd);
	CHECK(wait(&status) > 0 && status == 0);
	DO_FD(open("prog", O_WRONLY));
	make_file("script", "#!/bin/sh\nexit 7\n", 17, 0644);
	DO(execl("./script", "script", NULL));
	CHECK(chmod("script", 0755) == 0);
	if (fork() == 0)
		execl("./script", "script", NULL);
	CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 7);
}

const struct posix_case posix_file_cases[] = {
	{ "nameless-unlinked", nameless_unlinked },
	{ "nameless-renamed-over", nameless_renamed_over },
	{ "nameless-reopened", nameless_reopened },
	{ "nameless-other-link", nameless_other_link },
	{ "tmpfile", tmpfile_life },
	{ "data-sizes", data_sizes },
	{ "data-direct", data_direct },
	{ "data-vectors", data_vectors },
	{ "data-append", data_append },
	{ "data-append-race", data_append_race },
	{ "data-truncate", data_truncate },
	{ "data-holes-sparse", data_sparse },
	{ "data-holes", data_holes },
	{ "data-holes-blocks", data_blocks },
	{ "data-copy-range", data_copy_range },
	{ "data-mmap", data_mmap },
	{ "data-sync", data_sync },
	{ "locks", locks },
	{ "fifo-and-socket", fifo_and_socket },
	{ "run-programs", run_programs },
	{ 0 },
};
