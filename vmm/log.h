/*
 * Messages for the person at the terminal: one line, one write(2), on standard error.
 *
 * Callable from every thread.  The level is the one global variable of heddle; it is set by main
 * before the first thread starts.  Messages whose cause a guest controls use log_limited(), so that
 * a hostile guest cannot fill a disk.
 */
#ifndef VMM_LOG_H
#define VMM_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_DEBUG };

/* Set once, before threads: messages above this level are dropped. */
void log_set_level(enum log_level level);

/* One line "heddle: [warning: ]TEXT\n"; cut at 1 KiB. */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A whole line of any length, as it is: counters as JSON. */
void log_line(const char *line);

/* A guest's text may end up on a terminal, where all but these bytes could be commands to it. */
static inline bool log_may_print(char c)
{
	return (c >= ' ' && c <= '~') || c == '\t';
}

/* One budget per call site: the first 10 messages, then one a second. */
struct log_site {
	_Atomic uint32_t n;
	_Atomic int64_t next_ns;
};

/* True when this site may speak now. */
bool log_site_open(struct log_site *site);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#define log_limited(level, ...)                            \
	do {                                               \
		static struct log_site log_site_here;      \
		if (log_site_open(&log_site_here))         \
			log_write((level), __VA_ARGS__);   \
	} while (0)

#endif
