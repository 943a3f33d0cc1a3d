/* Credentials of a serving thread: see cred.h. */
#include "devices/fuse/cred.h"

#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAP_BIT(cap) ((uint64_t)1 << (cap))

/*
 * What serving takes: files of any owner (the guest's kernel has checked), other users' names,
 * set-id bits, device nodes, security.capability, trusted.* names.  Not on the list, so that the
 * host's rules hold for a guest too: CAP_SYS_RESOURCE (quotas) and all the rest.
 */
#define CAPS_KEPT                                                                                \
	(CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_DAC_READ_SEARCH) |         \
	 CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_SETUID) | CAP_BIT(CAP_SETGID) | \
	 CAP_BIT(CAP_MKNOD) | CAP_BIT(CAP_SETFCAP) | CAP_BIT(CAP_SYS_ADMIN))

/*
 * What the kernel holds for this thread, so that we need not ask it.  Thread-local because it
 * mirrors state that is the thread's: two queues served by one thread share it.
 */
static _Thread_local struct {
	bool ready;
	bool switches;                              /* may become another user */
	bool has_groups;                            /* may change its groups */
	bool keeps_setid;                           /* CAP_FSETID is effective now */
	bool no_fixup;                              /* capabilities do not follow the user id */
	uint32_t uid, gid;                          /* between requests */
	uint32_t mask;                              /* umask now */
	uint32_t fsgid;                             /* 0 but between changes of files; see cred_change */
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

/* For good: what is no longer permitted cannot be made effective again. */
static void caps_drop(void)
{
	bool more = self.permitted & ~CAPS_KEPT;

	self.permitted &= CAPS_KEPT;
	self.effective &= CAPS_KEPT;
	self.inheritable &= CAPS_KEPT;
	if (more)
		caps_set(self.effective);
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
	caps_drop();
	self.mask = 0;
	self.keeps_setid = self.effective & CAP_BIT(CAP_FSETID);
	/* Group 0 is the guest's root's, and what cred_leave() goes back to. */
	self.switches = geteuid() == 0 && (self.effective & need) == need &&
			syscall(SYS_setresgid, -1, 0, -1) == 0;
	self.no_fixup = prctl(PR_GET_SECUREBITS) & SECBIT_NO_SETUID_FIXUP;
	self.uid = geteuid();
	self.gid = getegid();
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

static void be_in_group(uint32_t gid)
{
	if (self.fsgid == gid)
		return;
	syscall(SYS_setfsgid, gid);
	/* It says what was before, not whether it works: there may be no such group here. */
	self.fsgid = (uint32_t)syscall(SYS_setfsgid, UINT32_MAX);
}

void cred_change(const struct cred *c, bool keep, bool by_group)
{
	cred_keep_setid(keep);
	if (self.switches)
		be_in_group(by_group && !keep && c->gid != UINT32_MAX ? c->gid : 0);
}

/* Serving on as somebody else would be worse than stopping; our saved ids make it impossible. */
static void must(long rc)
{
	assert(rc == 0);
}

static int group_join(const struct cred *c)
{
	if (!c->has_group || !self.has_groups)
		return 0;
	return syscall(SYS_setgroups, 1, &c->group) < 0 ? -errno : 0;
}

static void group_leave(const struct cred *c)
{
	if (c->has_group && self.has_groups)
		must(syscall(SYS_setgroups, 0, NULL));
}

static int become_user(uint32_t uid, bool keep_setid)
{
	uint64_t fsetid = CAP_BIT(CAP_FSETID);

	if (syscall(SYS_setresuid, -1, uid, -1) < 0)
		return -errno;
	/*
	 * Leaving root took all capabilities.  Permission was the guest kernel's question, and it
	 * knows groups and capabilities of the caller that we do not: keep what overrides
	 * permission, leave off what makes set-id bits stick.
	 */
	caps_set(keep_setid ? self.effective : self.effective & ~fsetid);
	self.keeps_setid = keep_setid && self.effective & fsetid;
	return 0;
}

static int become(const struct cred *c)
{
	int rc;

	/* -1 would mean "as before", which is root. */
	if (c->uid == UINT32_MAX || c->gid == UINT32_MAX)
		return -EPERM;
	if (c->uid == 0)
		cred_keep_setid(c->root);
	rc = group_join(c);
	if (rc < 0)
		goto refuse;
	if (c->gid != 0 && syscall(SYS_setresgid, -1, c->gid, -1) < 0) {
		rc = -errno;
		goto leave_group;
	}
	if (c->uid != 0)
		rc = become_user(c->uid, c->root);
	if (rc == 0)
		return 0;
	if (c->gid != 0)
		must(syscall(SYS_setresgid, -1, 0, -1));
leave_group:
	group_leave(c);
refuse:
	/* EINVAL: no such id, or none in our user namespace.  Ids are the guest's to choose. */
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
	if (self.switches)
		be_in_group(0);
	if (!self.switches)
		return !c->exact || (c->uid == self.uid && c->gid == self.gid) ? 0 : -EPERM;
	if (c->uid == 0 && c->gid == 0 && !c->has_group) {
		cred_keep_setid(c->root);
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
		if (self.effective != self.permitted || self.no_fixup)
			caps_set(self.effective);
	}
	if (c->gid != 0)
		must(syscall(SYS_setresgid, -1, 0, -1));
	group_leave(c);
}
