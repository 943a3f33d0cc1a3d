/* What the fake guest of bench-fs asks for: see fs_rig.h. */
#include "tests/bench/fs_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_LEN 4096u /* one page of entries, as Linux asks for */

static const struct move_kind *move;
static uint32_t open_flags;

/* --- look-up and open ------------------------------------------------------------------------- */

static void ask_name(struct slot *s, uint32_t opcode, uint64_t dir, const char *name,
		     uint32_t out_len)
{
	char *body = request(s, opcode, dir);
	size_t len = strlen(name) + 1;

	memcpy(body, name, len);
	request_cut(s, (uint32_t)len, 0, out_len, 0);
}

static void ask_open(struct slot *s, uint32_t opcode, uint64_t node, uint32_t flags)
{
	struct fuse_open_in *in = request(s, opcode, node);

	in->flags = flags;
	request_cut(s, sizeof(*in), 0, sizeof(struct fuse_open_out), 0);
}

static void ask_release(struct slot *s, uint32_t opcode, uint64_t node, uint64_t fh)
{
	struct fuse_release_in *in = request(s, opcode, node);

	in->fh = fh;
	request_cut(s, sizeof(*in), 0, 0, 0);
}

static uint64_t entry_of(struct slot *s)
{
	return ((struct fuse_entry_out *)reply(s, 0, sizeof(struct fuse_entry_out)))->nodeid;
}

static uint64_t opened(struct slot *s)
{
	return ((struct fuse_open_out *)reply(s, 0, sizeof(struct fuse_open_out)))->fh;
}

/* The lane's file, opened with open_flags. */
static bool next_open(struct fs_lane *l, struct slot *s)
{
	char name[32];

	switch (s->step++) {
	case 0:
		if (l->todo == 0)
			return false;
		l->todo = 0;
		snprintf(name, sizeof(name), "data-%u", l->index);
		ask_name(s, FUSE_LOOKUP, FUSE_ROOT_ID, name, sizeof(struct fuse_entry_out));
		return true;
	case 1:
		l->node = entry_of(s);
		ask_open(s, FUSE_OPEN, l->node, open_flags);
		return true;
	default:
		l->fh[open_flags & O_DIRECT ? 1 : 0] = opened(s);
		return false;
	}
}

/* The directory of small files: every lane needs its node. */
static uint64_t small_node, many_node;

static bool next_folders(struct fs_lane *l, struct slot *s)
{
	switch (s->step++) {
	case 0:
		if (l->index > 0 || l->todo == 0)
			return false;
		l->todo = 0;
		ask_name(s, FUSE_LOOKUP, FUSE_ROOT_ID, "small", sizeof(struct fuse_entry_out));
		return true;
	case 1:
		small_node = entry_of(s);
		ask_name(s, FUSE_LOOKUP, FUSE_ROOT_ID, "many", sizeof(struct fuse_entry_out));
		return true;
	default:
		many_node = entry_of(s);
		return false;
	}
}

void rig_open_files(void)
{
	open_flags = O_RDWR;
	(void)run(next_open, 1);
	(void)run(next_folders, 1);
}

/* Ours are the server's descriptors too. */
static bool any_is_direct(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	bool found = false;

	while (d && (e = readdir(d))) {
		int flags = fcntl(atoi(e->d_name), F_GETFL);

		found = found || (flags >= 0 && flags & O_DIRECT && !(flags & O_PATH));
	}
	if (d)
		closedir(d);
	return found;
}

bool rig_can_direct(void)
{
	open_flags = O_RDWR | O_DIRECT;
	(void)run(next_open, 1);
	return any_is_direct();
}

/* --- bytes ------------------------------------------------------------------------------------ */

static uint64_t next_offset(struct fs_lane *l)
{
	uint64_t pieces = FS_FILE_LEN / move->len, i = l->next_item++;

	if (!move->random)
		return i % pieces * move->len;
	l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
	return (l->seed >> 33) % pieces * move->len;
}

static void ask_read(struct fs_lane *l, struct slot *s)
{
	struct fuse_read_in *in = request(s, FUSE_READ, l->node);

	in->fh = l->fh[move->direct];
	in->size = move->len;
	in->flags = move->direct ? O_RDWR | O_DIRECT : O_RDWR;
	request_cut(s, sizeof(*in), 0, 0, move->len);
}

static void ask_write(struct fs_lane *l, struct slot *s)
{
	struct fuse_write_in *in = request(s, FUSE_WRITE, l->node);

	in->fh = l->fh[move->direct];
	in->size = move->len;
	in->flags = move->direct ? O_RDWR | O_DIRECT : O_RDWR;
	request_cut(s, sizeof(*in), move->len, sizeof(struct fuse_write_out), 0);
}

static void check_moved(struct slot *s)
{
	struct fuse_write_out *out;

	if (!move->write) {
		(void)reply(s, 0, move->len);
		return;
	}
	out = reply(s, 0, sizeof(*out));
	need(out->size == move->len, "a short write");
}

/* What differs from the slot's last request is the offset. */
static void set_offset(struct slot *s, uint64_t off)
{
	_Static_assert(offsetof(struct fuse_read_in, offset) ==
			       offsetof(struct fuse_write_in, offset),
		       "one place for both");
	memcpy(s->head + 64 + offsetof(struct fuse_read_in, offset), &off, sizeof(off));
}

static bool next_move(struct fs_lane *l, struct slot *s)
{
	if (s->step++ > 0) {
		check_moved(s);
		l->done++;
	}
	if (l->todo == 0)
		return false;
	l->todo--;
	if (!s->laid_out) {
		if (move->write)
			ask_write(l, s);
		else
			ask_read(l, s);
		s->laid_out = true;
	}
	set_offset(s, next_offset(l));
	return true;
}

struct sample rig_move(const struct move_kind *k)
{
	move = k;
	return run(next_move, k->ops);
}

/* --- small files ------------------------------------------------------------------------------ */

static uint64_t small_file[FS_FILES]; /* nodes */

static void small_name(char name[16], uint64_t item)
{
	snprintf(name, 16, "f%06u", (unsigned)item);
}

static bool take_item(struct fs_lane *l, struct slot *s)
{
	if (l->todo == 0)
		return false;
	l->todo--;
	s->item = l->next_item++;
	s->step = 1;
	return true;
}

static void ask_create(struct slot *s, const char *name)
{
	struct fuse_create_in *in = request(s, FUSE_CREATE, small_node);
	size_t len = strlen(name) + 1;

	in->flags = O_RDWR | O_CREAT | O_EXCL;
	in->mode = S_IFREG | 0644;
	in->umask = 022;
	memcpy(in + 1, name, len);
	request_cut(s, (uint32_t)(sizeof(*in) + len), 0,
		    sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out), 0);
}

static void created(struct slot *s)
{
	struct fuse_entry_out *e =
		reply(s, 0, sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out));

	s->node = small_file[s->item] = e->nodeid;
	s->fh = ((struct fuse_open_out *)(e + 1))->fh;
}

static void ask_small_write(struct slot *s)
{
	struct fuse_write_in *in = request(s, FUSE_WRITE, s->node);

	in->fh = s->fh;
	in->size = FS_SMALL_LEN;
	in->flags = O_RDWR;
	request_cut(s, sizeof(*in), FS_SMALL_LEN, sizeof(struct fuse_write_out), 0);
}

static void ask_flush(struct slot *s)
{
	struct fuse_flush_in *in = request(s, FUSE_FLUSH, s->node);

	in->fh = s->fh;
	request_cut(s, sizeof(*in), 0, 0, 0);
}

/* As a guest's open, write and close: five requests. */
static bool next_create(struct fs_lane *l, struct slot *s)
{
	char name[16];

	if (s->step == 5) {
		(void)reply(s, 0, 0);
		l->done++;
		s->step = 0;
	}
	if (s->step == 0 && !take_item(l, s))
		return false;
	small_name(name, s->item);
	switch (s->step) {
	case 1:
		ask_name(s, FUSE_LOOKUP, small_node, name, sizeof(struct fuse_entry_out));
		s->step = 11;
		return true;
	case 11:
		/* "Not there" is an answer too, which a guest may keep. */
		need(entry_of(s) == 0, "a file is there already");
		ask_create(s, name);
		s->step = 2;
		return true;
	case 2:
		created(s);
		ask_small_write(s);
		s->step = 3;
		return true;
	case 3:
		(void)reply(s, 0, sizeof(struct fuse_write_out));
		ask_flush(s);
		s->step = 4;
		return true;
	default:
		(void)reply(s, 0, 0);
		ask_release(s, FUSE_RELEASE, s->node, s->fh);
		s->step = 5;
		return true;
	}
}

static bool next_stat(struct fs_lane *l, struct slot *s)
{
	char name[16];

	if (s->step > 0) {
		need(entry_of(s) == small_file[s->item], "another node than before");
		l->done++;
	}
	if (!take_item(l, s))
		return false;
	small_name(name, s->item);
	ask_name(s, FUSE_LOOKUP, small_node, name, sizeof(struct fuse_entry_out));
	return true;
}

static void ask_forget(struct slot *s, uint64_t node, uint64_t n)
{
	struct fuse_forget_in *in = request(s, FUSE_FORGET, node);

	in->nlookup = n;
	request_cut(s, sizeof(*in), 0, 0, 0);
}

static bool next_unlink(struct fs_lane *l, struct slot *s)
{
	char name[16];

	if (s->step == 1) {
		(void)reply(s, 0, 0);
		ask_forget(s, small_file[s->item], 1u << 20);
		s->step = 2;
		return true;
	}
	if (s->step == 2)
		l->done++;
	if (!take_item(l, s))
		return false;
	small_name(name, s->item);
	ask_name(s, FUSE_UNLINK, small_node, name, 0);
	return true;
}

struct sample rig_create(void)
{
	return run(next_create, FS_FILES / n_lanes);
}

struct sample rig_stat(void)
{
	return run(next_stat, FS_FILES / n_lanes);
}

struct sample rig_unlink(void)
{
	return run(next_unlink, FS_FILES / n_lanes);
}

/* --- a large directory ------------------------------------------------------------------------ */

static bool list_plus;
static uint64_t list_off;

static void ask_list(struct slot *s)
{
	struct fuse_read_in *in =
		request(s, list_plus ? FUSE_READDIRPLUS : FUSE_READDIR, many_node);

	in->fh = s->fh;
	in->offset = list_off;
	in->size = LIST_LEN;
	request_cut(s, sizeof(*in), 0, 0, LIST_LEN);
}

/* Entries of a reply; nodes to forget go to the next request, when there is one.  How many. */
static unsigned take_entries(struct fs_lane *l, struct slot *s, struct fuse_forget_one *forget)
{
	size_t len = s->used_len - sizeof(struct fuse_out_header), at = 0;
	unsigned n = 0;

	while (at < len) {
		const uint8_t *p = s->data + at;
		const struct fuse_entry_out *plus = (const void *)p;
		const struct fuse_dirent *d = (const void *)(p + (list_plus ? sizeof(*plus) : 0));

		if (list_plus && plus->nodeid)
			forget[n++] = (struct fuse_forget_one){ plus->nodeid, 1 };
		list_off = d->off;
		l->done++;
		at += (list_plus ? sizeof(*plus) : 0) + FUSE_DIRENT_SIZE(d);
	}
	return n;
}

static void ask_batch_forget(struct slot *s, const struct fuse_forget_one *forget, unsigned n)
{
	struct fuse_batch_forget_in *in = request(s, FUSE_BATCH_FORGET, 0);

	in->count = n;
	memcpy(in + 1, forget, n * sizeof(*forget));
	request_cut(s, (uint32_t)(sizeof(*in) + n * sizeof(*forget)), 0, 0, 0);
}

static bool next_list_go(struct fs_lane *l, struct slot *s)
{
	struct fuse_forget_one forget[LIST_LEN / sizeof(struct fuse_dirent)];
	uint64_t before = l->done;
	unsigned n;

	(void)reply(s, 0, 0);
	n = take_entries(l, s, forget);
	if (l->done == before) {
		ask_release(s, FUSE_RELEASEDIR, many_node, s->fh);
		s->step = 3;
	} else if (n > 0) {
		ask_batch_forget(s, forget, n);
		s->step = 2;
	} else {
		ask_list(s);
	}
	return true;
}

static bool next_list(struct fs_lane *l, struct slot *s)
{
	switch (s->step) {
	case 0:
		if (l->todo == 0 || l->index > 0)
			return false;
		l->todo = 0;
		list_off = 0;
		ask_open(s, FUSE_OPENDIR, many_node, O_RDONLY | O_DIRECTORY);
		s->step = 4;
		return true;
	case 4:
		s->fh = opened(s);
		ask_list(s);
		s->step = 1;
		return true;
	case 1:
		return next_list_go(l, s);
	case 2:
		ask_list(s);
		s->step = 1;
		return true;
	default:
		(void)reply(s, 0, 0);
		return false;
	}
}

struct sample rig_list(bool plus)
{
	struct sample s;

	list_plus = plus;
	s = run(next_list, 1);
	need((uint64_t)s.ops == FS_LISTED + 2, "entries are missing");
	return s;
}
