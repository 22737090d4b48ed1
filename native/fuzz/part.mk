# Fuzz targets. `make -C native fuzz` builds them with our own driver (gcc), `make -C native fuzz-libfuzzer` with clang's.
#
# To add a target: fuzz/NAME.c with LLVMFuzzerTestOneInput, seeds in fuzz/corpus/NAME/, and one line
#   $(eval $(call fuzz_target,NAME,sources of the code under test))
# The code under test is compiled apart from the normal build, with coverage, sanitizers and -DWIRE_FUZZ.
FUZZ_SANITIZE ?= address,undefined
FUZZ_CHECKS := -fsanitize=$(FUZZ_SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_OBJ := $(BUILD)/obj-fuzz
FUZZ_CFLAGS = -g -O2 -std=c11 -D_GNU_SOURCE -DWIRE_FUZZ $(WARNINGS) -pthread $(FUZZ_CHECKS)
FUZZ_DRIVER := fuzz/driver.c fuzz/coverage.c fuzz/mutate.c
fuzz_objects = $(patsubst %.c,$(FUZZ_OBJ)/%.o,$(1))
CLANG ?= clang

.PHONY: fuzz fuzz-libfuzzer
FUZZ :=
FUZZ_LIBFUZZER :=

# The driver watches, so it is not watched itself; what makes inputs is not under test either.
$(call fuzz_objects,$(FUZZ_DRIVER) fuzz/ptx_mutate.c): FUZZ_WATCH :=
FUZZ_WATCH = -fsanitize-coverage=trace-pc,trace-cmp
# Inputs are made of tokens: comparisons of single characters would tell nothing, and took half of the time.
$(call fuzz_objects,device/ptx/lex.c): FUZZ_WATCH := -fsanitize-coverage=trace-pc

$(FUZZ_OBJ)/%.o: %.c | $(CALLS_STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(FUZZ_CFLAGS) $(FUZZ_WATCH) -MMD -MP -c -o $@ $<

$(FUZZ_OBJ)/generated/%.o: $(BUILD)/generated/%.c | $(CALLS_STAMP)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(FUZZ_CFLAGS) $(FUZZ_WATCH) -MMD -MP -c -o $@ $<

define fuzz_target
FUZZ += $(BUILD)/fuzz/$(1)
$(BUILD)/fuzz/$(1): $(call fuzz_objects,fuzz/$(1).c $(2) $(FUZZ_DRIVER))
	@mkdir -p $$(@D)
	$$(CC) -pthread $$(FUZZ_CHECKS) -o $$@ $$^
FUZZ_LIBFUZZER += $(BUILD)/libfuzzer/$(1)
$(BUILD)/libfuzzer/$(1): fuzz/$(1).c $(2)
	@mkdir -p $$(@D)
	@command -v $$(CLANG) >/dev/null || { echo "$$(CLANG) is not installed; \`make fuzz\` needs gcc only" >&2; exit 3; }
	$$(CLANG) $$(CPPFLAGS) $$(FUZZ_CFLAGS) -fsanitize=fuzzer -o $$@ $$^
endef

$(eval $(call fuzz_target,ring,wire/shm.c wire/wait.c wire/doorbell.c))
$(eval $(call fuzz_target,socket,wire/handshake.c wire/transports.c wire/shm.c wire/shm_region.c wire/wait.c wire/unix_socket.c wire/doorbell.c wire/passing.c))

$(eval $(call fuzz_target,fatbin,$(wildcard device/fatbin/*.c)))
$(eval $(call fuzz_target,cubin,device/cubin.c device/cubin_info.c device/ptx/pool.c))

# The loader and the interpreter of PTX need libm and their own flags (see device/part.mk), so the rule is our own.
PTX_FUZZED := fuzz/ptx.c fuzz/ptx_mutate.c device/meter.c $(wildcard device/ptx/*.c)
$(call fuzz_objects,$(wildcard device/ptx/*.c)): FUZZ_CFLAGS += -fno-strict-aliasing -ffp-contract=off -fno-math-errno
$(BUILD)/fuzz/ptx: $(call fuzz_objects,$(PTX_FUZZED) $(FUZZ_DRIVER))
	@mkdir -p $(@D)
	$(CC) -pthread $(FUZZ_CHECKS) -o $@ $^ -lm
FUZZ += $(BUILD)/fuzz/ptx

fuzz: $(FUZZ)
fuzz-libfuzzer: $(FUZZ_LIBFUZZER)

-include $(shell find $(FUZZ_OBJ) -name '*.d' 2>/dev/null)
