"""The runtimes of a machine, as `gputax doctor` lists them."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.doctor.cluster import Wanted, check_runtime_class
from gputax.doctor.runtimes import check_runtimes


def facts(engines: list[str], **versions: str) -> dict[str, Any]:
    return {"runtimes": {"engines": engines, "versions": versions}}


def test_what_is_there_is_listed_with_its_version() -> None:
    (found,) = check_runtimes(
        facts(["podman"], runc="runc version 1.1.5+ds1", crun="crun version 1.8.1", runsc="runsc version release-1")
    )
    assert (found.status, found.detail) == ("ok", "podman; runc 1.1.5+ds1, crun 1.8.1, runsc release-1")


def test_runtimes_without_an_engine_are_listed_too() -> None:
    (found,) = check_runtimes(facts([], youki="youki version: 0.7.0"))
    assert found.detail == "neither docker nor podman; youki 0.7.0"


@pytest.mark.parametrize("nothing", [{}, facts([])])
def test_a_machine_without_containers_is_not_told_of_runtimes(nothing: dict[str, Any]) -> None:
    assert check_runtimes(nothing) == []


def test_a_program_that_is_another_one_is_a_warning() -> None:
    _, found = check_runtimes(facts(["docker"], runsc="runc version 1.1.5"))
    assert (found.status, found.title, found.fix_command) == ("warn", "The program runsc is runc", "runsc --version")


def test_a_program_that_says_nothing_is_listed_by_its_name() -> None:
    (found,) = check_runtimes(facts(["docker"], runc=""))
    assert found.detail == "docker; runc"


def test_a_clusters_classes_are_listed_where_none_is_asked_for() -> None:
    (found,) = check_runtime_class({"runtime_classes": {"xen-gpu": "xen-cri", "gvisor": "runsc"}}, Wanted())
    assert found.detail == "gvisor (handler runsc), xen-gpu (handler xen-cri)"
    assert check_runtime_class({"runtime_classes": None}, Wanted()) == []


def test_a_class_that_an_environment_names_must_exist() -> None:
    wanted = Wanted("k8s:gvisor", runtime_class="gvisor")
    (found,) = check_runtime_class({"runtime_classes": {}}, wanted)
    assert (found.status, found.title) == ("fail", "The RuntimeClass gvisor does not exist")
