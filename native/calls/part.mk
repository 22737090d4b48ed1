# The table of calls and what both sides share with it.
CALLS_GENERATED := $(addprefix $(BUILD)/generated/,cuda_calls.h fronts.h fronts.c calls.h call_names.c vgpu_stubs.c vgpu_procs.c device_procs.c \
    refused_calls.c backend_calls.h proxy_dispatch.c)
CALLS_STAMP := $(BUILD)/generated/.made
CALLS_OBJECTS := $(call objects,calls/ranges.c calls/image.c calls/json.c) $(BUILD)/obj/generated/call_names.o

$(CALLS_STAMP): calls/calls.toml calls/generate.py calls/table.py calls/emit.py
	@mkdir -p $(@D)
	$(PYTHON) -B calls/generate.py $< $(@D)
	@touch $@
$(CALLS_GENERATED): $(CALLS_STAMP) ;
