"""The self-test: the same questions to a driver directly and behind the GPU proxy, compared answer by answer."""
