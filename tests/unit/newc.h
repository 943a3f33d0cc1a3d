/*
 * A reader of newc archives for tests: every field is checked, every length against the archive's
 * end.
 */
#ifndef TESTS_UNIT_NEWC_H
#define TESTS_UNIT_NEWC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct newc_file {
	const char *name; /* NUL-terminated, in the archive */
	const uint8_t *data;
	uint32_t mode, len, major, minor;
};

/* Upper or lower case, exactly 8 digits. */
static inline bool newc_hex(const uint8_t *p, uint32_t *value)
{
	*value = 0;
	for (int i = 0; i < 8; i++) {
		unsigned c = p[i] | 0x20;
		unsigned digit = c >= 'a' ? c - 'a' + 10 : c - '0';

		if (digit > 15)
			return false;
		*value = *value << 4 | digit;
	}
	return true;
}

static inline size_t newc_pad(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

/* 1: f is the file at *off, which moves on.  0: f is the trailer.  -1: not an archive. */
static inline int newc_next(const void *archive, size_t len, size_t *off, struct newc_file *f)
{
	const uint8_t *p = (const uint8_t *)archive + *off;
	const size_t left = len - *off;
	uint32_t field[13];
	size_t name_end;

	if (*off > len || left < 110 || memcmp(p, "070701", 6) != 0)
		return -1;
	for (int i = 0; i < 13; i++)
		if (!newc_hex(p + 6 + 8 * i, &field[i]))
			return -1;
	f->mode = field[1];
	f->len = field[6];
	f->major = field[9];
	f->minor = field[10];
	name_end = newc_pad(110 + (size_t)field[11]);
	if (field[11] == 0 || name_end > left || f->len > left - name_end ||
	    p[110 + field[11] - 1] != '\0' || strlen((const char *)p + 110) != field[11] - 1)
		return -1;
	f->name = (const char *)p + 110;
	f->data = p + name_end;
	if (newc_pad(name_end + f->len) > left)
		return -1;
	*off += newc_pad(name_end + f->len);
	return strcmp(f->name, "TRAILER!!!") != 0;
}

#endif
