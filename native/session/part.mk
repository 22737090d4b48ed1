# Sessions: programs that dom0 runs in a Xen guest. The static one in guest/ is the guest's.
SESSION_STREAM := session/stream.c session/frame.c wire/doorbell.c
SESSION_GUEST := session/serve.c session/request.c session/program.c session/container.c
SESSION_SOURCES := session/main.c session/carrier.c session/host.c session/guest.c $(SESSION_STREAM) $(SESSION_GUEST) \
                   link/grants.c link/channel.c link/xenstore.c
ALL += $(BUILD)/xen-session

$(BUILD)/xen-session: $(call objects,$(SESSION_SOURCES))
	$(LINK) -o $@ $^
