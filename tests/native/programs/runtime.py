"""The self-test's program on the runtime: `runtime.py LIBCUDART FATBIN`; the last line is a JSON object of facts."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from gputax.worker.selftest.runtime import Program, questions

program = Program(sys.argv[1], Path(sys.argv[2]).read_bytes())
count = ctypes.c_int()
refused = program.runtime.cudaGetDeviceCount(ctypes.byref(count))
if refused:
    print(json.dumps({"refused": refused}))
    sys.exit()
answers = {name: ask() for name, ask in questions(program)}
report = ctypes.create_string_buffer(4096)
ctypes.CDLL("libcuda.so.1").gputax_runtime_report(report, ctypes.c_size_t(len(report)))
print(json.dumps({**answers["facts"], "runtime": json.loads(report.value)}))
