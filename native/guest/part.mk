# What runs in a Xen guest: static, because a guest has no libraries of its own.
GUEST := $(BUILD)/guest/init $(BUILD)/guest/xen-link $(BUILD)/guest/xen-session
GUEST_INIT := $(call objects,guest/init.c link/xenstore.c)
ifeq ($(SANITIZE),)
ALL += $(GUEST)
endif

$(BUILD)/guest/init: $(GUEST_INIT)
	@mkdir -p $(@D)
	$(LINK_ANY) -static -o $@ $^

$(BUILD)/guest/xen-link: $(call objects,$(LINK_SOURCES)) $(WIRE_OBJECTS)
	@mkdir -p $(@D)
	$(LINK_ANY) -static -o $@ $^

$(BUILD)/guest/xen-session: $(call objects,$(SESSION_SOURCES))
	@mkdir -p $(@D)
	$(LINK_ANY) -static -o $@ $^
