# The GPU proxy; everything but its main program is also linked into the fuzz target of the calls.
PROXY_OBJECTS := $(call objects,$(filter-out proxy/main.c,$(sort $(wildcard proxy/*.c confine/*.c)))) \
    $(BUILD)/obj/generated/proxy_dispatch.o
ALL += $(BUILD)/gputax-proxy

$(BUILD)/gputax-proxy: $(call objects,proxy/main.c link/name.c) $(PROXY_OBJECTS) $(CALLS_OBJECTS) $(WIRE_OBJECTS)
	$(LINK) -o $@ $^ -ldl
