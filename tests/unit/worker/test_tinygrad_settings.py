"""The variables under which tinygrad is imported: ours, and of the user's only what other parts read."""

from __future__ import annotations

import os

import pytest

from gputax.worker.engines.tinygrad_package import only_these, settings

LIBRARY = "/somewhere/libcuda.so.1"


def test_of_the_users_variables_only_those_of_the_system_the_driver_and_gputax_stay() -> None:
    given = {
        "HOME": "/home/me",
        "LD_LIBRARY_PATH": "/x",
        "GPUTAX_SOFT_MEMORY_MB": "2048",
        "CUDA_VISIBLE_DEVICES": "1",
        "CUDA_MPS_PIPE_DIRECTORY": "/mps",
        "DEBUG": "7",
        "BEAM": "4",
        "DEV": "CPU",
        "CUDA_PATH": "/usr/local/cuda",
        "CUDA_CC": "sm_50",
        "CACHEDB": "/elsewhere",
    }
    found = settings(given, LIBRARY, graphs=True)
    assert {name: found[name] for name in list(given)[:5]} == {name: given[name] for name in list(given)[:5]}
    assert not {"DEBUG", "BEAM", "CUDA_CC", "CACHEDB"} & set(found)
    assert found["DEV"] == "CUDA:PTX"
    assert found["CUDA_PATH"] == LIBRARY, "exactly the library that was chosen for the worker"


@pytest.mark.parametrize(("graphs", "mode"), [(True, "1"), (False, "2")])
def test_a_driver_without_graphs_gets_launches(graphs: bool, mode: str) -> None:
    assert settings({}, LIBRARY, graphs=graphs)["JIT"] == mode


def test_it_starts_no_process_and_keeps_nothing_on_disk() -> None:
    found = settings({"PARALLEL": "8", "CACHELEVEL": "2"}, LIBRARY, graphs=True)
    assert found["PARALLEL"] == "0"
    assert found["CACHELEVEL"] == "0"


def test_the_environment_is_put_back_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    before = dict(os.environ)
    seen: list[dict[str, str]] = []

    def use() -> None:
        with only_these({"DEV": "CUDA:PTX"}):
            seen.append(dict(os.environ))
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        use()
    assert seen == [{"DEV": "CUDA:PTX"}]
    assert dict(os.environ) == before
