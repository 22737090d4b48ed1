# The program that measures operations on whatever libcuda.so.1 it is given.
ALL += $(BUILD)/tests/op_bench
$(BUILD)/tests/op_bench: $(call objects,tests/op_bench.c)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ -ldl

# The program that compares two of them by the bytes that come back.
ALL += $(BUILD)/tests/byte_digest
$(BUILD)/tests/byte_digest: $(call objects,tests/byte_digest.c)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ -ldl

# The fuzz target of the calls: the whole dispatcher and, as its backend, the whole software device (which needs libm, so
# the rule is our own).
ifdef fuzz_objects
CALLS_FUZZED := fuzz/calls.c $(filter-out $(addprefix proxy/,main.c worker.c compiler.c compilers.c confine.c allowed.c broker.c governor.c places.c status.c spawn.c identity.c backend.c),$(sort $(wildcard proxy/*.c))) calls/ranges.c \
    calls/image.c calls/json.c $(addprefix $(BUILD)/generated/,proxy_dispatch.c call_names.c device_procs.c fronts.c refused_calls.c) $(WIRE_SOURCES) $(DEVICE_SOURCES)
$(BUILD)/fuzz/calls: $(call fuzz_objects,$(CALLS_FUZZED) $(FUZZ_DRIVER))
	@mkdir -p $(@D)
	$(CC) -pthread $(FUZZ_CHECKS) -o $@ $^ -lm
fuzz: $(BUILD)/fuzz/calls

# That of libraries and of the runtime's tables: the software device alone.
TABLES_FUZZED := fuzz/tables.c $(addprefix $(BUILD)/generated/,device_procs.c fronts.c refused_calls.c) $(DEVICE_SOURCES)
$(BUILD)/fuzz/tables: $(call fuzz_objects,$(TABLES_FUZZED) $(FUZZ_DRIVER))
	@mkdir -p $(@D)
	$(CC) -pthread $(FUZZ_CHECKS) -o $@ $^ -lm
fuzz: $(BUILD)/fuzz/tables
endif
