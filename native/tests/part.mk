# Test programs: each part of native has its own fragment beside this one.
include $(filter-out tests/part.mk,$(wildcard tests/*.mk))
