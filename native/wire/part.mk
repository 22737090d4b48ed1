# The transports: objects that both sides link.
WIRE_SOURCES := wire/handshake.c wire/listen.c wire/transports.c wire/shm.c wire/shm_region.c wire/wait.c \
                wire/unix_socket.c wire/spin_budget.c wire/doorbell.c wire/passing.c
WIRE_OBJECTS := $(call objects,$(WIRE_SOURCES))
ALL += $(WIRE_OBJECTS)
