# heddle: build, tests, benchmarks.  `make help` lists the targets.
#
# Non-recursive; sources are found by wildcard; every CONFIG (release, asan, tsan, ...) has its own
# folder build/$(ARCH)-$(CONFIG), so that a sanitizer run never forces a rebuild of the product.

MACHINE := $(shell uname -m)
ARCH    ?= $(if $(filter aarch64 arm64,$(MACHINE)),arm64,x86)
CONFIG  ?= release
B       := build/$(ARCH)-$(CONFIG)
VERSION := 0.1

ifeq ($(origin CC),default)
CC       := gcc
endif
AS_MUSL  ?= musl-gcc
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)
SAY      := $(if $(filter 1,$(V)),:,printf "  %-4s %s\n")
PREFIX   ?= /usr/local
WERROR   ?= $(if $(wildcard .git),-Werror)

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wvla \
           -Wframe-larger-than=4096 -Wno-unused-parameter \
           -Wno-missing-field-initializers # handlers share signatures; an absent field means zero
HARDEN  := -fstack-protector-strong -fPIE
OPT     := -O2 -g
LDHARD  := -pie -Wl,-z,relro,-z,now -Wl,--as-needed

ifeq ($(CONFIG),release)
HARDEN  += -D_FORTIFY_SOURCE=2
else ifeq ($(CONFIG),asan)
SAN     := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT     := -O1 -g
WARN    += -Wno-frame-larger-than
else ifeq ($(CONFIG),tsan)
SAN     := -fsanitize=thread
OPT     := -O1 -g
WARN    += -Wno-frame-larger-than
else ifeq ($(CONFIG),fuzz)
CC      := clang
SAN     := -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined
OPT     := -O1 -g
WARN    += -Wno-frame-larger-than
else ifeq ($(CONFIG),clang)
CC      := clang
else ifeq ($(CONFIG),coverage)
SAN     := --coverage
OPT     := -O0 -g
else
$(error CONFIG=$(CONFIG): release, clang, asan, tsan, fuzz or coverage)
endif

# The decompressors are linked statically where that is possible: three libraries less to load at start.
comma   := ,
STATIC  := $(filter /%,$(shell $(CC) -print-file-name=libzstd.a))
LIBS    := $(if $(STATIC),-Wl$(comma)-Bstatic) -lzstd -llzma -lz $(if $(STATIC),-Wl$(comma)-Bdynamic) -pthread
CFLAGS  += -std=gnu11 $(OPT) $(WARN) $(WERROR) $(HARDEN) $(SAN)
CPPFLAGS += -D_GNU_SOURCE -DHEDDLE_VERSION='"$(VERSION)"' -I. -I$(B)
LDFLAGS += $(LDHARD) $(SAN) -pthread

ARCH_SRC := $(wildcard arch/$(ARCH)/*.c)
ifeq ($(ARCH_SRC),)
$(error ARCH=$(ARCH) is not supported yet: arch/$(ARCH) holds only its contract, vmm/arch.h)
endif
SRC     := $(wildcard vmm/*.c devices/*.c devices/fuse/*.c) $(ARCH_SRC)
BLOB    := $(wildcard vmm/*.S arch/$(ARCH)/*.S)
OBJ     := $(SRC:%.c=$(B)/%.o) $(BLOB:%.S=$(B)/%.o)
LIBOBJ  := $(filter-out $(B)/vmm/main.o,$(OBJ))
UNIT    := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/test_*.c))
FUZZ    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: all
all: build/heddle

# The name every script uses: the product of the default configuration.
build/heddle: $(B)/heddle
	@ln -sfn $(ARCH)-$(CONFIG)/heddle $@

$(B)/heddle: $(OBJ)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/libheddle.a: $(LIBOBJ)
	@rm -f $@
	@$(SAY) AR $@
	$(Q)$(AR) rcs $@ $^

# The limit on stack frames is for threads with small stacks, not for test programs.
$(B)/tests/%.o: WARN += -Wno-frame-larger-than

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/%.o: %.S
	@mkdir -p $(@D)
	@$(SAY) AS $@
	$(Q)$(CC) $(CPPFLAGS) -fPIE -g -Wa,-I$(B) -c -o $@ $<

# --- what heddle carries in itself ---------------------------------------------------------------

# Guest agent: a static program of its own; never instrumented.  musl has no kernel headers: those of
# the system, after its own.
AGENT_INC := -idirafter /usr/include -idirafter /usr/include/$(shell gcc -print-multiarch)
AGENT_SRC := $(wildcard guest-images/init/*.c)
$(B)/agent: $(AGENT_SRC) $(wildcard guest-images/init/*.h)
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -std=gnu11 -Os -s $(WARN) $(WERROR) -D_GNU_SOURCE -I. $(AGENT_INC) \
		-Wl,--gc-sections -ffunction-sections -o $@ $(AGENT_SRC)
$(B)/vmm/agent_image.o: $(B)/agent

# ACPI: static tables compiled by iasl.
$(B)/%.aml: arch/x86/%.asl arch/x86/layout.h
	@mkdir -p $(@D)
	@$(SAY) IASL $@
	$(Q)iasl -ve -p $(@:.aml=) $< >/dev/null
$(B)/arch/x86/acpi_image.o: $(B)/dsdt.aml

# --- tests ---------------------------------------------------------------------------------------

$(B)/unit/%: $(B)/tests/unit/%.o $(B)/libheddle.a
	@mkdir -p $(@D)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(B)/libheddle.a $(shell pkg-config --libs check) $(LIBS)

.PHONY: unit check-unit asan tsan
unit: $(UNIT)
check-unit: unit
	@tests/run-unit.sh unit-$(CONFIG) $(UNIT)
asan:
	@$(MAKE) --no-print-directory CONFIG=asan check-unit
tsan:
	@$(MAKE) --no-print-directory CONFIG=tsan check-unit

# Fuzzers: libFuzzer programs with CONFIG=fuzz, else programs that replay their arguments.
ifeq ($(CONFIG),fuzz)
FUZZ_LINK := -fsanitize=fuzzer
else
FUZZ_MAIN := $(B)/tests/fuzz/replay.o
endif
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(FUZZ_MAIN) $(B)/libheddle.a
	@mkdir -p $(@D)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) $(FUZZ_LINK) -o $@ $^ $(LIBS)

.PHONY: fuzzers fuzz fuzz-replay fuzz-smoke
fuzzers: $(FUZZ:%=$(B)/fuzz/%)
fuzz-replay:
	@$(MAKE) --no-print-directory CONFIG=asan fuzzers
	@tests/fuzz.sh replay $(FUZZ)
fuzz-smoke: fuzz-replay
	@$(MAKE) --no-print-directory CONFIG=fuzz fuzzers
	@tests/fuzz.sh smoke $(FUZZ)
fuzz:
	@$(MAKE) --no-print-directory CONFIG=fuzz fuzzers
	@tests/fuzz.sh run $(TARGET) $(or $(SECONDS),600)

# Guests: in the test host where this machine's KVM cannot run stock kernels.
KERNELS ?= bookworm-cloud bookworm-generic backports-cloud backports-generic
GUEST   ?= ends net netlife basic streams netoff root memory
build/guest-tests/%: tests/guest/%.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -O2 $(WARN) $(WERROR) $(AGENT_INC) -o $@ $<

build/guest-tests/slow: tests/fuse/slow.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -O2 $(WARN) $(WERROR) $(AGENT_INC) -o $@ $<

build/guest-tests/initrd: $(B)/tests/guest/initrd.o $(B)/libheddle.a
	@mkdir -p $(@D)
	@$(SAY) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: kernels check-guest check-fuse testbed demo
kernels:
	@guest-images/kernels.sh $(KERNELS)
GUEST_TESTS := $(addprefix build/guest-tests/,tool nettool initrd slow)
check-guest: build/heddle $(GUEST_TESTS)
	@guest-images/kernels.sh $(KERNELS)
	@tests/guest.sh $(GUEST)
testbed: build/heddle
	@tests/testbed/testbed run '$(CMD)'
demo: setup
	@$(MAKE) --no-print-directory build/heddle
	@tests/demo.sh

-include tests/fuse/rules.mk
-include tests/bench/rules.mk

.PHONY: check setup layers docs tidy musl
setup:
	@tests/setup.sh
check: setup
	@tests/check.sh
layers:
	@tests/layers.sh
docs: build/heddle
	@tests/docs.sh build/heddle
tidy: $(B)/libheddle.a $(B)/agent
	@tests/tidy.sh $(SRC) $(AGENT_SRC)
musl:
	@tests/musl.sh $(SRC)

# --- housekeeping --------------------------------------------------------------------------------

.PHONY: install dist clean help
install: build/heddle
	install -D -s build/heddle $(DESTDIR)$(PREFIX)/bin/heddle
	install -D -m 644 heddle.1 $(DESTDIR)$(PREFIX)/share/man/man1/heddle.1
dist:
	git archive --prefix=heddle-$(VERSION)/ -o build/heddle-$(VERSION).tar.gz HEAD
clean:
	rm -rf build/x86-* build/arm64-* build/heddle build/guest-tests build/results build/bench build/fuzz build/musl build/tidy
help:
	@echo 'all             build/heddle (CONFIG=release asan tsan fuzz coverage, ARCH=x86, CC=, V=1)'
	@echo 'demo            set-up, then a stock kernel boots and runs a command'
	@echo 'check           set-up, then every test; the last line counts them'
	@echo 'check-unit asan tsan     unit tests; under ASan and UBSan; under TSan'
	@echo 'check-fuse      the file server behind /dev/fuse'
	@echo 'check-guest     stock kernels (GUEST="$(GUEST)" KERNELS="...")'
	@echo 'fuzz-smoke fuzz          5 s of each fuzzer; TARGET=fuzz_kernel SECONDS=600'
	@echo 'tidy layers docs musl    clang-tidy, include rules, manual = help = README, musl'
	@echo 'bench-start     start-up time, beside a bare program and QEMU'
	@echo 'bench-ring      network device, beside a bare loop on the same tap; no VM'
	@echo 'bench-fs        virtio-fs device, beside plain system calls; no VM (CASE="...": some of it)'
	@echo 'bench-fs-guest  guests on a share, beside QEMU with virtiofsd'
	@echo 'bench-net       guests on the network, beside QEMU and vhost-net'
	@echo 'testbed         CMD="..." runs a command in the test host'
	@echo 'setup kernels install dist clean'

-include $(OBJ:.o=.d) $(wildcard $(B)/tests/unit/*.d $(B)/tests/fuzz/*.d $(B)/tests/guest/*.d)
.SECONDARY:
