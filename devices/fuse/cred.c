/* Credentials of a serving thread: see cred.h. */
#include "devices/fuse/cred.h"

#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAP_BIT(cap) ((uint64_t)1 << (cap))

/*
 * What the kernel holds for this thread, so that we need not ask it.  Thread-local because it
 * mirrors state that is the thread's: two queues served by one thread share it.
 */
static _Thread_local struct {
	bool ready;
	bool switches;                              /* may become another user */
	bool has_groups;                            /* may change its groups */
	bool keeps_setid;                           /* CAP_FSETID is effective now */
	uint32_t mask;                              /* umask now */
	uint64_t effective, permitted, inheritable; /* at the start */
} self;

static int caps_get(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	self.effective = data[0].effective | (uint64_t)data[1].effective << 32;
	self.permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
	self.inheritable = data[0].inheritable | (uint64_t)data[1].inheritable << 32;
	return 0;
}

static void caps_set(uint64_t effective)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	long rc;

	for (int i = 0; i < 2; i++) {
		data[i].effective = (uint32_t)(effective >> 32 * i);
		data[i].permitted = (uint32_t)(self.permitted >> 32 * i);
		data[i].inheritable = (uint32_t)(self.inheritable >> 32 * i);
	}
	rc = syscall(SYS_capset, &head, data);
	/* Lowering, or raising within permitted, cannot be refused. */
	assert(rc == 0);
}

int cred_thread_init(void)
{
	uint64_t need = CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID);
	int rc;

	if (self.ready)
		return 0;
	/* Threads share umask and working directory until told otherwise. */
	if (unshare(CLONE_FS) < 0)
		return -errno;
	umask(0);
	rc = caps_get();
	if (rc < 0)
		return rc;
	self.mask = 0;
	self.keeps_setid = self.effective & CAP_BIT(CAP_FSETID);
	self.switches = geteuid() == 0 && (self.effective & need) == need;
	self.has_groups = self.switches && syscall(SYS_setgroups, 0, NULL) == 0;
	self.ready = true;
	return 0;
}

void cred_keep_setid(bool keep)
{
	if (!(self.effective & CAP_BIT(CAP_FSETID)) || self.keeps_setid == keep)
		return;
	caps_set(keep ? self.effective : self.effective & ~CAP_BIT(CAP_FSETID));
	self.keeps_setid = keep;
}

/* Serving on as somebody else would be worse than stopping; our saved ids make it impossible. */
static void must(long rc)
{
	assert(rc == 0);
}

static void groups_set(size_t n, const uint32_t *groups)
{
	if (self.has_groups)
		must(syscall(SYS_setgroups, n, groups));
}

static int become_user(uint32_t uid)
{
	if (syscall(SYS_setresuid, -1, uid, -1) < 0)
		return -errno;
	/*
	 * Leaving root took all capabilities.  Permission was the guest kernel's question, and it
	 * knows groups and capabilities of the caller that we do not: keep what overrides
	 * permission, leave off what makes set-id bits stick.
	 */
	caps_set(self.effective & ~CAP_BIT(CAP_FSETID));
	self.keeps_setid = false;
	return 0;
}

static int become(const struct cred *c)
{
	int rc = 0;

	/* -1 would mean "as before", which is root. */
	if (c->uid == UINT32_MAX || c->gid == UINT32_MAX)
		return -EINVAL;
	if (c->uid == 0)
		cred_keep_setid(true);
	if (c->has_group)
		groups_set(1, &c->group);
	if (c->gid != 0 && syscall(SYS_setresgid, -1, c->gid, -1) < 0) {
		rc = -errno;
		goto undo_groups;
	}
	if (c->uid != 0)
		rc = become_user(c->uid);
	if (rc == 0)
		return 0;
	if (c->gid != 0)
		must(syscall(SYS_setresgid, -1, 0, -1));
undo_groups:
	if (c->has_group)
		groups_set(0, NULL);
	/* EINVAL: the id does not exist in our user namespace. */
	return rc == -EINVAL ? -EPERM : rc;
}

int cred_enter(const struct cred *c, uint32_t mask)
{
	assert(self.ready);
	mask &= 0777;
	if (self.mask != mask) {
		umask(mask);
		self.mask = mask;
	}
	if (!self.switches)
		return 0;
	if (c->uid == 0 && c->gid == 0 && !c->has_group) {
		cred_keep_setid(true);
		return 0;
	}
	return become(c);
}

void cred_leave(const struct cred *c)
{
	if (!self.switches)
		return;
	if (c->uid != 0) {
		must(syscall(SYS_setresuid, -1, 0, -1));
		/* The kernel has made all that is permitted effective. */
		self.keeps_setid = self.effective & CAP_BIT(CAP_FSETID);
		if (self.effective != self.permitted)
			caps_set(self.effective);
	}
	if (c->gid != 0)
		must(syscall(SYS_setresgid, -1, 0, -1));
	if (c->has_group)
		groups_set(0, NULL);
}
