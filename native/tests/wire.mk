# Test programs of the transports; `make wire-tests` builds these alone.
WIRE_TESTS :=
define wire_test
WIRE_TESTS += $(BUILD)/tests/$(1)
$(BUILD)/tests/$(1): $(call objects,$(2)) $(WIRE_OBJECTS)
	@mkdir -p $$(@D)
	$$(LINK) -o $$@ $$^
endef
$(eval $(call wire_test,wire_latency,tests/wire_latency.c))
$(eval $(call wire_test,wire_conformance,tests/wire_conformance.c tests/wire_pair.c tests/wire_traffic.c \
  tests/wire_ends.c tests/wire_hostile.c tests/wire_greeting.c tests/wire_link.c $(LOCAL_LINK_SOURCES)))
$(eval $(call wire_test,local_link,tests/local_link.c $(LOCAL_LINK_SOURCES)))
$(eval $(call wire_test,wait_policy,tests/wait_policy.c))
$(eval $(call wire_test,wait_stress,tests/wait_stress.c))
ALL += $(WIRE_TESTS)
.PHONY: wire-tests
wire-tests: $(WIRE_TESTS)
