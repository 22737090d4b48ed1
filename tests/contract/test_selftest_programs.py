"""The programs of the self-test, and with them a prebuilt fat binary, give right answers on the software device.

They run in this process: the library is loaded as the loader would find it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.environments.driver import SOFTWARE_DEVICE, native_directory, native_part
from gputax.worker.selftest.probe import GROUPS, asked
from gputax.worker.selftest.stage import RefusedError, Stage, WrongError, hold

# A fault ends the context that this process shares with other tests; tables are off without the operator's word.
ALONE = ("faults",)
NAMES = [name for name, group in GROUPS.items() if name not in ALONE and not group.runtime_only]


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted((native_directory() / "kernels").iterdir())}


@pytest.fixture(autouse=True)
def _software_device() -> None:
    ctypes.CDLL(str(native_part(SOFTWARE_DEVICE)), mode=ctypes.RTLD_GLOBAL)


@pytest.mark.parametrize("name", NAMES)
def test_every_program_of_a_group_ends_with_its_known_answer(name: str, images: dict[str, bytes]) -> None:
    rows = asked(GROUPS[name].questions(Stage(images)), lambda text: None)
    assert [row for row in rows if "wrong" in row] == []
    assert len({row["name"] for row in rows}) == len(rows) >= 5


def test_the_images_that_are_loaded_are_those_of_the_source(images: dict[str, bytes]) -> None:
    native = Path(__file__).parents[2] / "native"
    sources = [*native.glob("kernels/*.ptx"), native / "tests/runtime/program.fatbin"]
    assert images == {path.stem: path.read_bytes() for path in sources}


def test_a_wrong_answer_a_refusal_and_a_group_that_ends_early_are_rows() -> None:
    def questions() -> Iterator[tuple[str, object]]:
        yield "right", lambda: 1
        yield "wrong", lambda: hold(False, "two and two")
        yield "refused", lambda: _raise(RefusedError("cuX", 801))
        raise WrongError("no more")

    rows = asked(questions(), lambda text: None)  # type: ignore[arg-type]
    assert rows == [
        {"name": "right", "answer": 1},
        {"name": "wrong", "wrong": "two and two", "refused": None},
        {"name": "refused", "wrong": "cuX: CUDA error 801", "refused": 801},
        {"name": "(what comes next)", "wrong": "no more", "refused": None},
    ]


def _raise(error: Exception) -> None:
    raise error
