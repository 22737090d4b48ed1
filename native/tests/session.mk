# Test programs of sessions; `make session-tests` builds these alone.
SESSION_TESTS := $(BUILD)/tests/session_local $(BUILD)/tests/session_frames
ALL += $(SESSION_TESTS)

$(BUILD)/tests/session_local: $(call objects,tests/session_local.c session/carrier.c $(SESSION_STREAM) $(SESSION_GUEST))
$(BUILD)/tests/session_frames: $(call objects,tests/session_frames.c session/request.c $(SESSION_STREAM))
$(SESSION_TESTS):
	@mkdir -p $(@D)
	$(LINK) -o $@ $^

.PHONY: session-tests
session-tests: $(SESSION_TESTS)
