# The file server behind /dev/fuse: programs and `make check-fuse`.

FUSE_POSIX := $(wildcard tests/fuse/posix*.c)

$(B)/fuse/mount: $(B)/tests/fuse/mount.o $(B)/libheddle.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# Clients of the mount, never instrumented; posix is static so that it also runs in a guest.
$(B)/fuse/posix: $(FUSE_POSIX) tests/fuse/posix.h
	@mkdir -p $(@D)
	$(CC) -static -std=gnu11 -O2 -g $(WARN) $(WERROR) -D_GNU_SOURCE -I. -o $@ $(FUSE_POSIX)

$(B)/fuse/stress $(B)/fuse/swap $(B)/fuse/slow: $(B)/fuse/%: tests/fuse/%.c
	@mkdir -p $(@D)
	$(CC) -static -std=gnu11 -O2 -g $(WARN) $(WERROR) -D_GNU_SOURCE -I. -o $@ $< -pthread

.PHONY: fuse-tests check-fuse
fuse-tests: $(addprefix $(B)/fuse/,mount posix stress swap slow)
check-fuse: fuse-tests
	@tests/fuse/run.sh $(B)

-include $(B)/tests/fuse/mount.d
