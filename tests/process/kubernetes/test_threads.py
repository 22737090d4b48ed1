"""The client in several threads, as a duet of two pods uses it: msgspec crashes if two decode a class first at once."""

from __future__ import annotations

import subprocess
import sys

# The shortest turns that Python has: without the preparation this ended with SIGSEGV every time.
SCRIPT = """
import sys, threading
sys.setswitchinterval(1e-6)
from lightkube.core import decoders
from gputax.kubernetes.client import resource
together = threading.Barrier(3)
def work():
    together.wait()
    decoders.decode_list(b'{"items": [{"metadata": {"name": "a"}, "spec": {"containers": []}}]}', resource("Pod"))
threads = [threading.Thread(target=work) for _ in range(3)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_three_threads_that_first_read_pods_at_once_do_not_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
