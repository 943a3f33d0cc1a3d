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
else ifeq ($(CONFIG),coverage)
SAN     := --coverage
OPT     := -O0 -g
else
$(error CONFIG=$(CONFIG): release, asan, tsan, fuzz or coverage)
endif

LIBS    := $(shell pkg-config --libs libkmod libzstd liblzma zlib) -pthread
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

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/%.o: %.S
	@mkdir -p $(@D)
	@$(SAY) AS $@
	$(Q)$(CC) $(CPPFLAGS) -fPIE -g -Wa,-I$(B) -c -o $@ $<

# --- what heddle carries in itself ---------------------------------------------------------------

# Guest agent: a static program of its own; never instrumented.
AGENT_SRC := $(wildcard guest-images/init/*.c)
$(B)/agent: $(AGENT_SRC) $(wildcard guest-images/init/*.h)
	@mkdir -p $(@D)
	@$(SAY) CC $@
	$(Q)$(AS_MUSL) -static -std=gnu11 -Os -s $(WARN) $(WERROR) -D_GNU_SOURCE -I. \
		-Wl,--gc-sections -ffunction-sections -o $@ $(AGENT_SRC)
$(B)/vmm/agent_image.o: $(B)/agent

# ACPI: static tables compiled by iasl.
$(B)/%.aml: arch/x86/%.asl
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

# --- housekeeping --------------------------------------------------------------------------------

.PHONY: clean
clean:
	rm -rf build/x86-* build/arm64-* build/heddle

-include $(OBJ:.o=.d) $(wildcard $(B)/tests/unit/*.d)
.SECONDARY:
