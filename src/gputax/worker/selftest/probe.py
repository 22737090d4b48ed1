"""One group of questions to the driver of this process, answered one by one; nothing is judged here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputax.errors import GputaxError, PreflightError, unknown_name
from gputax.plan.cells import Setup
from gputax.worker.selftest import device, functions, graphs, kernels, libraries, memory, mistakes, streams, tables
from gputax.worker.selftest.stage import Question, Questions, RefusedError, Stage, WrongError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Questions that are asked in one process of their own."""

    title: str
    questions: Callable[[Stage], Questions]
    with_context: bool = True
    runtime_only: bool = False
    """Only answered where the CUDA runtime was asked for."""
    computes: bool = False
    """Its known answers are those of kernels, so that a device which computes nothing cannot give them."""


# A fault ends its context and a wrong table may end the process: what could harm others is a group of its own.
GROUPS: dict[str, Group] = {
    "device": Group("device: attributes, limits, names", device.questions),
    "names": Group("names: which calls are found", device.names),
    "functions": Group("kernels: attributes, occupancy", functions.questions),
    "copies": Group("copies, all sizes and alignments", memory.copies),
    "fills": Group("fills", memory.fills),
    "variables": Group("variables of modules", memory.variables),
    "kernels": Group("kernels with known answers", kernels.questions, computes=True),
    "libraries": Group("a fat binary that nvcc built", libraries.questions, computes=True),
    "streams": Group("streams, events, host functions", streams.questions, computes=True),
    "graphs": Group("graphs and stream capture", graphs.questions, computes=True),
    "pools": Group("memory pools", memory.pools),
    "host-memory": Group("mapped and pinned host memory", memory.host_memory, computes=True),
    "mistakes": Group("mistakes: the same errors", mistakes.questions),
    "faults": Group("a fault of a kernel", mistakes.faults, computes=True),
    "table-runtime": Group("table 6bd5fb6c: the runtime", tables.runtime, False, True),
    "table-self-test": Group("table d4082055: the self-test", tables.self_test, False, True),
    "table-storage": Group("table c693336e: values with a context", tables.storage, False, True),
    "table-hooks": Group("table a094798c: tools", tables.hooks, False, True),
    "table-thread": Group("table 42d85a81: the thread's context", tables.thread, False, True),
    "table-numbers": Group("table 21318c60: numbers", tables.numbers, False, True),
    "table-checks": Group("table 263e8860: checks", tables.checks, False, True),
    "table-others": Group("other tables", tables.others, False, True),
}


def probe(request: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Answer one `describe about=selftest`: a model's outputs, a program on the runtime, or a group of questions."""
    if "setup" in request:
        from gputax.worker.selftest.model import outputs

        return outputs(Setup.from_dict(dict(request["setup"])), say)
    name = str(request.get("group"))
    images = {str(key): base64.b64decode(text) for key, text in dict(request.get("images") or {}).items()}
    if name == "runtime":
        return _runtime(images[libraries.PROGRAM], str(request.get("cudart") or ""), say)
    if name not in GROUPS:
        raise unknown_name("group of the self-test", name, GROUPS)
    group = GROUPS[name]
    stage = Stage(images, with_context=group.with_context)
    device_name = stage.name()  # first: a group may end with a context that answers nothing any more
    return {"rows": asked(group.questions(stage), say), "device_name": device_name}


def _runtime(image: bytes, given: str, say: Say) -> dict[str, Any]:
    """Run the prebuilt program on the runtime that is installed here."""
    from gputax.worker.selftest.runtime import Program, find_cudart, questions

    library = find_cudart(given)
    if not library:
        raise PreflightError("no libcudart.so was found", next_step="pip install nvidia-cuda-runtime")
    return {"rows": asked(questions(Program(library, image)), say), "cudart": library}


def asked(questions: Questions, say: Say) -> list[dict[str, Any]]:
    """Ask all questions; a program that cannot go on is an answer, and so is a group that ends early."""
    rows: list[dict[str, Any]] = []
    while (question := _next(questions, rows)) is not None:
        name, ask = question
        say(name)  # the last one said is the one that ended the process
        rows.append({"name": name, **_answer(ask)})
    return rows


def _next(questions: Questions, rows: list[dict[str, Any]]) -> Question | None:
    try:
        return next(questions, None)
    except (RefusedError, WrongError) as error:
        rows.append({"name": "(what comes next)", "wrong": str(error), "refused": getattr(error, "code", None)})
        return None


def _answer(ask: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"answer": ask()}
    except (RefusedError, WrongError) as error:
        return {"wrong": str(error), "refused": getattr(error, "code", None)}
    except (GputaxError, OSError, ValueError, AttributeError) as error:
        return {"wrong": f"{type(error).__name__}: {error}", "refused": None}
