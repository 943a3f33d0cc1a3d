# Benchmarks: payload guests, references, harnesses.  Results: build/bench/NAME.json and NAME.md.
BENCH := build/bench
PAYLOAD := $(BENCH)/exit.bzimage $(BENCH)/halt.bzimage $(BENCH)/exit.elf $(BENCH)/halt.elf
PAYLOAD_LEN := 12582912 # 12 MiB, as big as a distribution kernel

.PHONY: bench-start bench-payloads
bench-start: build/heddle $(BENCH)/heddle $(BENCH)/bare $(BENCH)/start bench-payloads
	@tests/bench/start.sh
bench-payloads: $(PAYLOAD)

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
