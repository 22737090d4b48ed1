# The software CUDA device: a libcuda.so.1 that computes on the CPU.
DEVICE_SOURCES := $(wildcard device/*.c) $(wildcard device/ptx/*.c) $(wildcard device/compile/*.c) $(wildcard device/fatbin/*.c) $(wildcard driver/*.c) $(wildcard confine/*.c) calls/procs.c calls/image.c
DEVICE_OBJECTS := $(call objects,$(DEVICE_SOURCES)) $(BUILD)/obj/generated/device_procs.o \
    $(BUILD)/obj/generated/fronts.o $(BUILD)/obj/generated/refused_calls.o
DEVICE_LIBRARY := $(BUILD)/software/libcuda.so.1
ALL += $(DEVICE_LIBRARY) $(BUILD)/software/libcuda.so

# The interpreter's inner loops run over the 32 lanes of a warp and are worth vectorising. A register holds bits that one
# instruction reads as float and the next as integer (no strict aliasing); PTX says itself where a multiply-add is fused.
$(call objects,$(wildcard device/ptx/*.c)): FLAGS += -O3 -fno-strict-aliasing -ffp-contract=off -fno-math-errno

# Steps over the lanes of a warp get checked addresses and no text of a tenant. With these two flags a vector addition
# took 7 % more CPU time (two equal builds: 1 %), without them 4 % (5 %); loader and executor keep them.
$(call objects,$(wildcard device/ptx/ops_*.c)): FLAGS += -fno-stack-protector $(if $(CET),-fcf-protection=none)

# The assembler takes these headers in as text, which the compiler's list of dependencies does not show.
$(call objects,device/compile/prelude.c): device/ptx/scalar.h device/compile/abi.h device/compile/prelude.h

$(DEVICE_LIBRARY): $(DEVICE_OBJECTS)
	@mkdir -p $(@D)
	$(QUIET)$(LINK_SHARED) -Wl,-soname,libcuda.so.1 -o $@ $^ -lm -ldl

# Some programs open the name without a version.
$(BUILD)/software/libcuda.so: $(DEVICE_LIBRARY)
	$(QUIET)ln -sf libcuda.so.1 $@
