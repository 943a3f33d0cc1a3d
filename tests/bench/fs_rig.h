/*
 * What bench-fs measures: the virtio-fs device and its file server on a real directory, driven by a
 * fake guest, and beside it the same work done by plain system calls on the same directory.
 *
 * The fake guest is the caller's thread.  It keeps `depth` requests in flight on each queue: it
 * takes what was used, lets each slot go on to its next request, kicks if the device wants it, and
 * sleeps when nothing more was used, to be woken by the next used entry, as Linux's driver does.
 * Data lies in pages, one segment each, as Linux's driver cuts it.
 *
 * The plain threads are as many as the queues, and move data between the same file and the same
 * places in the guest's RAM; what differs is ring, device and server.
 */
#ifndef TESTS_BENCH_FS_RIG_H
#define TESTS_BENCH_FS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#define FS_QUEUES_MAX  32
#define FS_DEPTH_MAX   64
#define FS_FILE_LEN    (16ul << 20) /* of the one file for each queue */
#define FS_FILES       10000
#define FS_SMALL_LEN   1024
#define FS_FILES_MOUNT 1000 /* so many through /dev/fuse */
#define FS_LISTED      100000

struct sample {
	double ops, wall_ns;
	double cpu_ns; /* of the threads that did the work, together */
};

/* One way to move bytes. */
struct move_kind {
	const char *name;
	uint32_t len;
	bool write, random, direct; /* direct: O_DIRECT */
	unsigned ops;               /* of one sample, on each queue */
};

/* --- the directory (fs_plain.c) --------------------------------------------------------------- */

/*
 * Files for so many queues, in a directory that is there; they stay in the host's cache until the
 * program ends.
 */
void plain_files(const char *dir, unsigned queues);
/* FS_LISTED files in dir/many. */
void plain_many(const char *dir);
/* Remove what these and the samples have made. */
void plain_clean(const char *dir);

/*
 * The same as the samples below, by plain system calls.  The bytes of piece i of a thread lie at
 * data(thread, i).
 */
typedef void *plain_data_fn(unsigned thread, unsigned i);
struct sample plain_move(const char *dir, const struct move_kind *k, unsigned threads,
			 plain_data_fn *data);
struct sample plain_create(const char *dir, unsigned n);
struct sample plain_stat(const char *dir, unsigned n);
struct sample plain_unlink(const char *dir, unsigned n);
struct sample plain_list(const char *dir, bool plus);
/* Does the file system take O_DIRECT? */
bool plain_can_direct(const char *dir);

/* --- the device (fs_rig.c, fs_guest.c) -------------------------------------------------------- */

/* A share of dir on a running device: so many request queues, and requests in flight on each. */
void rig_open(const char *dir, unsigned queues, unsigned depth);
void rig_close(void);
/* Interrupts only when half of what is in flight was used: as few as a guest can ask for. */
void rig_few_interrupts(void);
/* A plain_data_fn: where request i of a queue has its data. */
void *rig_data(unsigned queue, unsigned i);

struct sample rig_move(const struct move_kind *k);
/* FS_FILES of FS_SMALL_LEN bytes made, looked up, removed; on all queues together. */
struct sample rig_create(void);
struct sample rig_stat(void);
struct sample rig_unlink(void);
/* List dir/many; with plus, every entry is looked up as well, and forgotten. */
struct sample rig_list(bool plus);
/* Does the server pass the guest's O_DIRECT on? */
bool rig_can_direct(void);

#endif
