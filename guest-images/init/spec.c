/*
 * The spec: records "KEY=VALUE" ended by NUL bytes.  heddle wrote it, so it is trusted to mean
 * well, but a wrong number is an error and not a guess.  Keys this agent does not know are noted
 * and passed over.
 *
 * Lists are sized for the worst case, every record being of that list.
 */
#include "guest-images/init/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned spec_count(const char *buf, size_t len)
{
	unsigned n = 0;

	for (size_t i = 0; i < len; i++)
		n += buf[i] == '\0';
	return n + 1; /* the last one may lack its NUL */
}

static void list_add(char **list, char *value)
{
	while (*list)
		list++;
	*list = value;
}

static bool parse_number(const char *s, unsigned *n)
{
	unsigned long v;
	char *end;

	errno = 0;
	v = strtoul(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || v > 0xffffffffu)
		return false;
	*n = v;
	return true;
}

/* Ends s at the first c; what comes after it, NULL when there is none or no s. */
static char *cut(char *s, char c)
{
	char *at = s ? strchr(s, c) : NULL;

	if (at)
		*at++ = '\0';
	return at;
}

/* "ROWSxCOLS" */
static bool parse_tty(struct spec *s, char *value)
{
	char *x = strchr(value, 'x');

	if (!x)
		return false;
	*x = '\0';
	s->tty = true;
	return parse_number(value, &s->rows) && parse_number(x + 1, &s->cols);
}

/* "TAG:MODE:PATH" */
static bool parse_mount(struct spec *s, char *value)
{
	char *mode = strchr(value, ':');
	char *path = mode ? strchr(mode + 1, ':') : NULL;

	if (!path || path[1] != '/')
		return false;
	*mode++ = '\0';
	*path++ = '\0';
	if (strcmp(mode, "rw") != 0 && strcmp(mode, "ro") != 0)
		return false;
	s->mount[s->n_mounts++] =
		(struct spec_mount){ .tag = value, .path = path, .ro = mode[1] == 'o' };
	return true;
}

/* "NUMBER,ADDRESS/LENGTH,GATEWAY,DNS" */
static bool parse_net(struct spec *s, char *value)
{
	struct spec_net *net = &s->net[s->n_nets++];
	char *prefix;

	net->address = cut(value, ',');
	net->gw = cut(net->address, ',');
	net->dns = cut(net->gw, ',');
	prefix = cut(net->address, '/');
	return net->dns && prefix && parse_number(value, &net->number) &&
	       parse_number(prefix, &net->prefix);
}

static bool parse_mode(struct spec *s, const char *value)
{
	if (!strcmp(value, "overlay"))
		s->root_mode = ROOT_OVERLAY;
	else if (!strcmp(value, "ro"))
		s->root_mode = ROOT_RO;
	else if (!strcmp(value, "rw"))
		s->root_mode = ROOT_RW;
	else
		return false;
	return true;
}

/* False: the value makes no sense. */
static bool spec_record(struct spec *s, const char *key, char *value)
{
	if (!strcmp(key, "module"))
		list_add(s->module, value);
	else if (!strcmp(key, "root"))
		s->root = value;
	else if (!strcmp(key, "rootmode"))
		return parse_mode(s, value);
	else if (!strcmp(key, "mount"))
		return parse_mount(s, value);
	else if (!strcmp(key, "net"))
		return parse_net(s, value);
	else if (!strcmp(key, "arg"))
		list_add(s->arg, value);
	else if (!strcmp(key, "init"))
		s->init = value;
	else if (!strcmp(key, "env"))
		list_add(s->env, value);
	else if (!strcmp(key, "cwd") || !strcmp(key, "cwdtry")) {
		s->cwd = value;
		s->cwd_try = key[3] != '\0';
	}
	else if (!strcmp(key, "tty"))
		return parse_tty(s, value);
	else if (!strcmp(key, "hostname"))
		s->hostname = value;
	else if (!strcmp(key, "uid"))
		return parse_number(value, &s->uid);
	else if (!strcmp(key, "gid"))
		return parse_number(value, &s->gid);
	else
		agent_note("unknown key in the spec: %s", key);
	return true;
}

static bool spec_alloc(struct spec *s, unsigned n)
{
	s->module = calloc(n + 1, sizeof(char *));
	s->arg = calloc(n + 1, sizeof(char *));
	s->env = calloc(n + 1, sizeof(char *));
	s->mount = calloc(n, sizeof(*s->mount));
	s->net = calloc(n, sizeof(*s->net));
	return s->module && s->arg && s->env && s->mount && s->net;
}

int spec_parse(struct agent *a, char *buf, size_t len)
{
	char *next;

	a->spec.buf = buf;
	if (!spec_alloc(&a->spec, spec_count(buf, len)))
		return agent_fail(a, ENOMEM, "spec");
	for (char *rec = buf; rec < buf + len; rec = next) {
		char *value = strchr(rec, '=');

		next = rec + strlen(rec) + 1;
		if (!value)
			return agent_fail(a, EINVAL, "spec: %s", rec);
		*value++ = '\0';
		if (!spec_record(&a->spec, rec, value))
			return agent_fail(a, EINVAL, "spec: %s=%s", rec, value);
	}
	if (!a->spec.init && !a->spec.arg[0])
		return agent_fail(a, EINVAL, "spec: no command");
	return 0;
}

int spec_load(struct agent *a, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	struct stat st;
	char *buf;

	if (fd < 0 || fstat(fd, &st))
		return agent_fail(a, errno, "%s", path);
	buf = malloc(st.st_size + 1);
	if (!buf)
		return agent_fail(a, ENOMEM, "%s", path);
	while (len < (size_t)st.st_size) {
		ssize_t n = read(fd, buf + len, st.st_size - len);

		if (n <= 0)
			return agent_fail(a, n ? errno : EIO, "%s", path);
		len += n;
	}
	close(fd);
	buf[len] = '\0';
	return spec_parse(a, buf, len);
}
