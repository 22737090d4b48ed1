"""Evidence: the answer as attributes, the document as it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.environments.environment import Evidence, unproven


def test_a_layer_without_a_reason_against_it_was_active() -> None:
    evidence = Evidence.of("k8s", [], {"pod": "p"})
    assert (evidence.layer, evidence.active, evidence.reasons) == ("k8s", True, ())
    assert list(evidence.to_dict()) == ["layer", "active", "pod"]


def test_reasons_stand_before_the_facts_and_a_warning_after_them() -> None:
    evidence = Evidence.of("mps", ["no cap"], {"node": "n"}, warning="no GPU")
    assert evidence.to_dict() == {
        "layer": "mps",
        "active": False,
        "reasons": ["no cap"],
        "node": "n",
        "warning": "no GPU",
    }
    assert list(evidence.to_dict()) == ["layer", "active", "reasons", "node", "warning"]
    assert evidence.facts == {"node": "n"}


def test_an_empty_list_of_reasons_is_stored_where_the_document_has_one() -> None:
    assert Evidence.of("proxy", [], list_reasons=True).to_dict() == {"layer": "proxy", "active": True, "reasons": []}


def test_a_layer_above_keeps_the_facts_below_and_gives_the_answer() -> None:
    pod = Evidence.of("k8s", ["restarted"], {"pod": "p", "pid": 1})
    both = pod.below("proxy", [*pod.reasons, "silent"], {"pid": 2, "device": "d"})
    assert both.to_dict() == {
        "layer": "proxy", "active": False, "pod": "p", "pid": 2, "reasons": ["restarted", "silent"], "device": "d",
    }  # fmt: skip
    assert list(both.to_dict()) == ["layer", "active", "pod", "pid", "reasons", "device"]


@pytest.mark.parametrize(
    ("stored", "active", "why_not"),
    [
        ({}, None, "no evidence"),
        ({"active": False}, False, "no evidence"),
        ({"active": False, "reasons": ["a", "b"]}, False, "a; b"),
        ({"active": "yes"}, None, "no evidence"),
    ],
)
def test_a_stored_document_is_read_as_it_is(stored: dict[str, Any], active: bool | None, why_not: str) -> None:
    evidence = Evidence(stored)
    assert (evidence.active, evidence.why_not) == (active, why_not)
    assert evidence.to_dict() == stored


def test_each_tenant_without_proof_is_named_with_every_reason() -> None:
    tenants = [Evidence({"active": True}), Evidence({}), Evidence({"active": False, "reasons": ["a", "b"]})]
    assert unproven(tenants) == ["tenant 2: no evidence", "tenant 3: a", "tenant 3: b"]
