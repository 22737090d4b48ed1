# The software device's own suite, in C, so that it can run with sanitizers.
$(BUILD)/tests/device_suite: $(call objects,tests/device_suite.c) $(DEVICE_OBJECTS)
	@mkdir -p $(@D)
	$(QUIET)$(LINK) -o $@ $^ -lm
ALL += $(BUILD)/tests/device_suite
