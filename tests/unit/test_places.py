"""The registry of environments: each row leads to what it names."""

from __future__ import annotations

import pytest

from gputax.errors import UsageError
from gputax.places import ROWS, environment_named, refuse_unknown
from gputax.plan.options import EnvironmentOptions


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_a_class_that_starts_workers_and_proves_them(name: str) -> None:
    found = ROWS[name].load()
    assert callable(found.start)
    assert callable(found.evidence)


@pytest.mark.parametrize("name", ["ssh:", "ssh:host+proxy", "k8s+", "k8s+proxy+xen", "proxy"])
def test_a_name_without_a_row_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="environment"):
        refuse_unknown(name)


def test_any_host_can_be_reached_by_ssh() -> None:
    assert environment_named("ssh:me+tag@gpu-1", options=EnvironmentOptions()).name == "ssh:me+tag@gpu-1"
