# Benchmarks: payload guests, references, harnesses.  Results: build/bench/NAME.json and NAME.md.
BENCH := build/bench
PAYLOAD := $(BENCH)/exit.bzimage $(BENCH)/halt.bzimage $(BENCH)/exit.elf $(BENCH)/halt.elf
PAYLOAD_LEN := 12582912 # 12 MiB, as big as a distribution kernel

.PHONY: bench-start bench-payloads
bench-start: build/heddle $(BENCH)/heddle $(BENCH)/bare $(BENCH)/start bench-payloads
	@tests/bench/start.sh
bench-payloads: $(PAYLOAD)

.PHONY: bench-ring
bench-ring: $(BENCH)/ring
	@tests/bench/ring.sh

$(BENCH)/ring: $(addprefix $(B)/tests/bench/,ring.o ring_rig.o ring_move.o harness.o report.o) $(B)/libheddle.a
	@mkdir -p $(@D)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: bench-fs
bench-fs: $(BENCH)/fs $(B)/fuse/mount
	@tests/bench/fs.sh $(B)/fuse/mount $(CASE)

$(BENCH)/fs: $(addprefix $(B)/tests/bench/,fs.o fs_rig.o fs_guest.o fs_plain.o harness.o report.o) \
		$(B)/libheddle.a
	@mkdir -p $(@D)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BENCH)/heddle: $(B)/heddle
	@mkdir -p $(@D)
	$(Q)strip -o $@ $<

# Not a part of the product, but compiled like it.
$(BENCH)/bare: tests/bench/bare.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $<
$(BENCH)/start: tests/bench/start.c tests/bench/report.c tests/bench/report.h
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^)

.PHONY: bench-net
bench-net: build/heddle $(BENCH)/heddle $(BENCH)/net $(BENCH)/netbench
	@guest-images/kernels.sh backports-cloud
	@tests/bench/net.sh
$(BENCH)/net: tests/bench/net.c tests/bench/report.c tests/bench/report.h
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^)
$(BENCH)/netbench: guest-images/bench/netbench.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -std=gnu11 -O2 $(WARN) $(WERROR) $(AGENT_INC) -o $@ $<

.PHONY: bench-fs-guest
bench-fs-guest: build/heddle $(BENCH)/heddle $(BENCH)/fs-vm $(BENCH)/fsbench
	@guest-images/kernels.sh backports-cloud
	@tests/bench/fs_vm.sh
$(BENCH)/fs-vm: tests/bench/fs_vm.c tests/bench/report.c tests/bench/report.h
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^)
$(BENCH)/fsbench: guest-images/bench/fsbench.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -std=gnu11 -O2 $(WARN) $(WERROR) $(AGENT_INC) -o $@ $<

$(BENCH)/noise: guest-images/bench/noise.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $<
$(BENCH)/noise.bin: $(BENCH)/noise
	$(Q)$< $$(($(PAYLOAD_LEN) - 4096)) >$@.tmp
	@mv $@.tmp $@

$(BENCH)/exit.%: PAYLOAD_DEFS =
$(BENCH)/halt.%: PAYLOAD_DEFS = -DHALT
$(BENCH)/%.bzimage: guest-images/bench/payload.S guest-images/bench/bzimage.ld $(BENCH)/noise.bin
	@$(SAY) LD $@
	$(Q)$(CC) -DBZIMAGE $(PAYLOAD_DEFS) -DPAD='"$(BENCH)/noise.bin"' -c -o $@.o $<
	$(Q)$(LD) -T guest-images/bench/bzimage.ld -o $@ $@.o
	@rm -f $@.o
$(BENCH)/%.elf: guest-images/bench/payload.S guest-images/bench/pvh.ld $(BENCH)/noise.bin
	@$(SAY) LD $@
	$(Q)$(CC) $(PAYLOAD_DEFS) -DPAD='"$(BENCH)/noise.bin"' -c -o $@.o $<
	$(Q)$(LD) -n -T guest-images/bench/pvh.ld -o $@ $@.o
	@rm -f $@.o

-include $(wildcard $(B)/tests/bench/*.d)
