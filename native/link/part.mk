# The link between a Xen guest and the GPU proxy in its driver domain.
LOCAL_LINK_SOURCES := link/local.c link/ends.c link/name.c
LINK_SOURCES := link/main.c link/guest.c link/host.c link/grants.c link/channel.c link/xenstore.c link/ends.c link/name.c
ALL += $(BUILD)/xen-link

$(BUILD)/xen-link: $(call objects,$(LINK_SOURCES)) $(WIRE_OBJECTS)
	$(LINK) -o $@ $^
