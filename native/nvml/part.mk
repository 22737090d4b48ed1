# libnvidia-ml.so.1 for tenants: what torch and monitoring tools ask of a device, answered through libvgpu beside it.
NVML_LIBRARY := $(BUILD)/vgpu/libnvidia-ml.so.1
ALL += $(NVML_LIBRARY)

$(NVML_LIBRARY): $(call objects,nvml/nvml.c nvml/unsupported.c nvml/utilisation.c)
	@mkdir -p $(@D)
	$(QUIET)$(LINK_SHARED) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^ -ldl
