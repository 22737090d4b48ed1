# The images that `gputax selftest` loads: PTX texts, and the fat binary of a program on the CUDA runtime.
SELFTEST_IMAGES := $(patsubst kernels/%,$(BUILD)/kernels/%,$(wildcard kernels/*.ptx)) $(BUILD)/kernels/program.fatbin
ALL += $(SELFTEST_IMAGES)

$(BUILD)/kernels/%.ptx: kernels/%.ptx
	@mkdir -p $(@D)
	$(QUIET)cp $< $@

$(BUILD)/kernels/program.fatbin: tests/runtime/program.fatbin
	@mkdir -p $(@D)
	$(QUIET)cp $< $@
