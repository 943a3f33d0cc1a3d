/* What the agent is told (vmm/guest_spec.h), and which kernel and modules are taken (vmm/kernel_find.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "vmm/guest_spec.h"
#include "vmm/run_opts.h"

static struct run_opts *options(void)
{
	struct run_opts *o = calloc(1, sizeof(*o));

	ck_assert_ptr_nonnull(o);
	strcpy(o->root, "/");
	return o;
}

static unsigned count(const struct guest_spec *s, const char *record)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += strcmp(s->record[i], record) == 0;
	return n;
}

static const char *find(const struct guest_spec *s, const char *prefix)
{
	for (unsigned i = 0; i < s->n; i++)
		if (strncmp(s->record[i], prefix, strlen(prefix)) == 0)
			return s->record[i];
	return "";
}

static void done(struct guest_spec *s, struct run_opts *o)
{
	for (unsigned i = 0; i < o->n_devices; i++)
		free(o->device[i].spec);
	free(o);
	guest_spec_free(s);
}

START_TEST(arguments_keep_every_byte_and_their_order)
{
	char *command[] = { "a b", "", "\001\377\n", "--", NULL };
	struct run_opts *o = options();
	struct guest_spec s;
	unsigned at = 0;

	o->command = command;
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	for (unsigned i = 0; i < s.n; i++)
		if (strncmp(s.record[i], "arg=", 4) == 0)
			ck_assert_str_eq(s.record[i] + 4, command[at++]);
	ck_assert_uint_eq(at, 4);
	done(&s, o);
}
END_TEST

START_TEST(only_harmless_variables_are_passed_on_unasked)
{
	struct run_opts *o = options();
	struct guest_spec s;

	clearenv();
	setenv("PATH", "/my/bin", 1);
	setenv("LC_ALL", "C", 1);
	setenv("TOKEN", "secret", 1);
	setenv("WANTED", "yes=1", 1);
	o->env[o->n_env++] = "WANTED";
	o->env[o->n_env++] = "ABSENT";
	o->env[o->n_env++] = "LC_ALL=de";
	o->env[o->n_env++] = "LC_ALL=fr"; /* the last one counts */
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	ck_assert_uint_eq(count(&s, "env=PATH=/my/bin"), 1);
	ck_assert_uint_eq(count(&s, "env=LC_ALL=C"), 0);
	ck_assert_uint_eq(count(&s, "env=LC_ALL=de"), 0);
	ck_assert_uint_eq(count(&s, "env=LC_ALL=fr"), 1);
	ck_assert_uint_eq(count(&s, "env=WANTED=yes=1"), 1);
	ck_assert_uint_eq(count(&s, "env=HOME=/root"), 1);
	ck_assert_str_eq(find(&s, "env=TOKEN"), "");
	ck_assert_str_eq(find(&s, "env=ABSENT"), "");
	done(&s, o);
}
END_TEST

START_TEST(another_root_gets_the_usual_path)
{
	struct run_opts *o = options();
	struct guest_spec s;

	setenv("PATH", "/my/bin", 1);
	strcpy(o->root, "/srv/x");
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	ck_assert_str_eq(find(&s, "env=PATH="), "env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:"
						"/usr/bin:/sbin:/bin");
	ck_assert_str_eq(find(&s, "arg="), "arg=/bin/sh");
	done(&s, o);
}
END_TEST

START_TEST(the_callers_directory_is_kept_when_it_lies_in_the_root)
{
	static const struct {
		const char *root, *cwd;
	} row[] = { { "/", "cwdtry=/usr/bin" },
		    { "/usr", "cwdtry=/bin" },
		    { "/usr/bin", "cwdtry=/" },
		    { "/us", "cwdtry=/" },
		    { "/etc", "cwdtry=/" } };

	ck_assert_int_eq(chdir("/usr/bin"), 0);
	for (unsigned i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct run_opts *o = options();
		struct guest_spec s;

		strcpy(o->root, row[i].root);
		ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
		ck_assert_str_eq(find(&s, "cwd"), row[i].cwd);
		done(&s, o);
		o = options();
		o->cwd = "/asked/for";
		ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
		ck_assert_str_eq(find(&s, "cwd"), "cwd=/asked/for");
		done(&s, o);
	}
}
END_TEST

START_TEST(shares_escape_commas_and_an_overlay_root_is_shared_read_only)
{
	char host[] = "/a,b", guest[] = "/mnt:x";
	struct run_opts *o = options();
	struct guest_spec s;

	o->mount[o->n_mounts++] = (struct run_mount){ .host = host, .guest = guest, .readonly = true };
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	ck_assert_uint_eq(o->n_devices, 2);
	ck_assert_str_eq(o->device[0].spec, "tag=heddle-root,path=/,ro");
	ck_assert_str_eq(o->device[1].spec, "tag=heddle-mount0,path=/a,,b,ro");
	ck_assert_uint_eq(count(&s, "mount=heddle-mount0:ro:/mnt:x"), 1);
	ck_assert_uint_eq(count(&s, "rootmode=overlay"), 1);
	done(&s, o);
}
END_TEST

START_TEST(addresses_go_by_the_number_of_the_network_device)
{
	struct run_opts *o = options();
	struct guest_spec s;

	ck_assert_int_eq(run_opts_add_device(o, "net", strdup("tap=a")), 0);
	ck_assert_int_eq(run_opts_add_device(o, "fs", strdup("tag=x,path=/")), 0);
	ck_assert_int_eq(
		run_opts_add_device(o, "net", strdup("tap=b,ip=fd00::2/64,gw=fd00::1,dns=1.2.3.4")),
		0);
	ck_assert_int_eq(run_opts_add_device(o, "net", strdup("tap=c,ip=192.0.2.2/24")), 0);
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	ck_assert_uint_eq(count(&s, "net=1,fd00::2/64,fd00::1,1.2.3.4"), 1);
	ck_assert_uint_eq(count(&s, "net=2,192.0.2.2/24,,"), 1);
	ck_assert_str_eq(find(&s, "net=0"), "");
	done(&s, o);
	o = options();
	ck_assert_int_eq(run_opts_add_device(o, "net", strdup("tap=a,ip=192.0.2.2")), 0);
	ck_assert_int_ne(guest_spec_make(&s, o, false), 0);
	done(&s, o);
}
END_TEST

START_TEST(a_terminal_is_asked_for_only_with_one)
{
	struct run_opts *o = options();
	struct guest_spec s;

	ck_assert_int_eq(guest_spec_make(&s, o, true), 0);
	ck_assert_str_ne(find(&s, "tty="), "");
	done(&s, o);
	o = options();
	ck_assert_int_eq(guest_spec_make(&s, o, false), 0);
	ck_assert_str_eq(find(&s, "tty="), "");
	done(&s, o);
}
END_TEST

/* Options as the user gives them; the kernel must exist but need not be one to be looked for. */
static int parse(struct run_opts *o, char *a, char *b, char *c, char *d)
{
	static char *argv[8]; /* o->command points into it */
	char *given[8] = { "run", "-k", "/etc/passwd", a, b, c, d, NULL };
	int argc = 3;

	memcpy(argv, given, sizeof(argv));

	while (argv[argc])
		argc++;
	return run_opts_parse(o, argc, argv);
}

#define NAME_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(options_are_completed_and_refused)
{
	struct run_opts *o = calloc(1, sizeof(*o));

	ck_assert_int_eq(parse(o, "-m", "131", "true", NULL), 0);
	ck_assert_uint_eq(o->ram, 130ULL << 20);
	ck_assert_uint_ge(o->n_vcpus, 1);
	ck_assert_str_eq(o->command[0], "true");
	ck_assert(!o->bare);
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--initrd", "/etc/passwd", NULL, NULL), 0);
	ck_assert(o->bare);
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--root", "/usr,rw", "--append=a", "--append=b"), 0);
	ck_assert_int_eq(o->root_mode, ROOT_RW);
	ck_assert_str_eq(o->append, "a b");
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--root=/usr,rw", "--root=/etc", "true", NULL), 0);
	ck_assert_int_eq(o->root_mode, ROOT_OVERLAY);
	ck_assert_str_eq(o->root, "/etc");
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--mount=/etc:/x,rw", "--mount=/usr:/y,ro", "true", NULL), 0);
	ck_assert(!o->mount[0].readonly && o->mount[1].readonly);
	ck_assert_str_eq(o->mount[0].guest, "/x");
	ck_assert_str_eq(o->mount[1].guest, "/y");
	run_opts_free(o);
	/* Keys of shares stand behind the mode or before it; what is none is a part of the path. */
	ck_assert_int_eq(parse(o, "--mount=/etc:/x,y,cache=none,ro,uid-map=0:1000:1+5:5:1,acl",
			       "--root=/usr,squash=0:0,rw,writeback", "true", NULL),
			 0);
	ck_assert(o->mount[0].readonly);
	ck_assert_str_eq(o->mount[0].host, "/etc");
	ck_assert_str_eq(o->mount[0].guest, "/x,y");
	ck_assert_str_eq(o->mount[0].share, ",cache=none,uid-map=0:1000:1+5:5:1,acl");
	ck_assert_int_eq(o->root_mode, ROOT_RW);
	ck_assert_str_eq(o->root, "/usr");
	ck_assert_str_eq(o->root_share, ",squash=0:0,writeback");
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--mount=/srv:/data,cahce=always", "true", NULL, NULL), 0);
	run_opts_free(o);
	/* In milliseconds it must fit 32 bits. */
	ck_assert_int_eq(parse(o, "--timeout", "4000000", "true", NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--timeout", "4300000", "true", NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--root", "/no/such/place", NULL, NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--mount", "/etc/passwd:/x", NULL, NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--mount", "/etc:relative", NULL, NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--modules", "/etc", NULL, NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--initrd", "/etc/passwd", "--mount", "/etc:/x"), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--initrd", "/etc/passwd", "--hostname", "x"), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--initrd", "/etc/passwd", "--cwd", "/"), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--initrd", "/etc/passwd", "--env", "A=1"), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--init=/sbin/init", "--cwd=/", NULL, NULL), 0);
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--hostname", NAME_64, "true", NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--hostname", NAME_64 "x", "true", NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--hostname", "", "true", NULL), 0);
	run_opts_free(o);
	ck_assert_int_ne(parse(o, "--initrd", "/etc/passwd", "--net", "tap=a,ip=10.0.0.2/8"), 0);
	run_opts_free(o);
	ck_assert_int_eq(parse(o, "--initrd", "/etc/passwd", "--net", "tap=a"), 0);
	run_opts_free(o);
	free(o);
}
END_TEST

SUITE_MAIN("guest_spec", 10, arguments_keep_every_byte_and_their_order,
	   only_harmless_variables_are_passed_on_unasked, another_root_gets_the_usual_path,
	   the_callers_directory_is_kept_when_it_lies_in_the_root,
	   shares_escape_commas_and_an_overlay_root_is_shared_read_only,
	   addresses_go_by_the_number_of_the_network_device, a_terminal_is_asked_for_only_with_one,
	   options_are_completed_and_refused)
