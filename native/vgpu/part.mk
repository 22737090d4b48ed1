# libvgpu, the tenants' libcuda.so.1.
VGPU_OBJECTS := $(call objects,$(sort $(wildcard vgpu/*.c) $(wildcard driver/*.c)) calls/procs.c) \
    $(BUILD)/obj/generated/vgpu_stubs.o $(BUILD)/obj/generated/vgpu_procs.o \
    $(BUILD)/obj/generated/fronts.o $(BUILD)/obj/generated/refused_calls.o
ALL += $(BUILD)/vgpu/libcuda.so.1 $(BUILD)/vgpu/libcuda.so

# nodelete: the handlers of forks stay registered, so the code must stay too.
$(BUILD)/vgpu/libcuda.so.1: $(VGPU_OBJECTS) $(CALLS_OBJECTS) $(WIRE_OBJECTS)
	@mkdir -p $(@D)
	$(LINK_SHARED) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic-functions -Wl,-z,nodelete -o $@ $^

$(BUILD)/vgpu/libcuda.so: $(BUILD)/vgpu/libcuda.so.1
	$(QUIET)ln -sf libcuda.so.1 $@
