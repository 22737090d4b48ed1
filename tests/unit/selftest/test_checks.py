"""Two sides' answers compared: equal, different, documented, failed, skipped."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.selftest.checks import Check, Reply, compared, counts, first_difference, is_equal

PROVEN = {"active": True}


def reply(*rows: dict[str, Any], **more: Any) -> Reply:
    return Reply(rows, "a device", **{"evidence": PROVEN, **more})


def answered(answer: Any, name: str = "q") -> dict[str, Any]:
    return {"name": name, "answer": answer}


def only(group: str, bare: Any, proxied: Any, name: str = "q") -> Check:
    (check,) = compared(group, reply(answered(bare, name)), reply(answered(proxied, name)))
    return check


def test_equal_answers_pass_and_are_kept() -> None:
    check = only("copies", [0, "abc"], [0, "abc"])
    assert (check.status, check.reason, check.bare, check.proxied) == ("pass", "", [0, "abc"], [0, "abc"])


def test_another_answer_is_different_with_the_place_of_the_first_difference() -> None:
    check = only("functions", [[0, 1], [0, 2]], [[0, 1], [0, 3]])
    assert (check.status, check.reason) == ("different", "at [1][1]: bare 2, bare+proxy 3")


def test_the_time_of_a_kernel_is_not_compared() -> None:
    assert only("kernels", {"answer": "x", "time": 1.0}, {"answer": "x", "time": 9.0}).status == "pass"
    assert only("kernels", {"answer": "x", "time": 1.0}, {"answer": "y", "time": 1.0}).status == "different"


@pytest.mark.parametrize(
    ("proxied", "status"),
    [([0, 0], "documented"), ([0, 1], "pass"), ([0, 2], "different"), ([1, None], "different")],
)
def test_only_the_stated_answer_of_a_hidden_attribute_is_documented(proxied: Any, status: str) -> None:
    assert only("device", [0, 1], proxied, "attribute 83").status == status


@pytest.mark.parametrize(
    ("proxied", "status"),
    [
        ([[0, 1, 0], [0, 0, 1]], "documented"),
        ([[0, 1, 0], [500, 0, 1]], "documented"),
        ([[0, 0, 1], [0, 1, 0]], "documented"),
        ([[0, 1, 0], [0, 1, 2]], "different"),
    ],
)
def test_a_call_that_libvgpu_lacks_must_be_not_found(proxied: Any, status: str) -> None:
    assert only("names", [[0, 1, 0], [0, 1, 0]], proxied, "cuTexObjectCreate").status == status
    assert only("names", [[0, 0, 1]], [[0, 1, 0]], "cuTexObjectCreate").status == "different", "more than the driver"


def test_an_attribute_that_no_page_names_is_different() -> None:
    assert only("device", [0, 1024], [0, 0], "attribute 1").status == "different"


def test_a_wrong_known_answer_fails_whatever_the_other_side_says() -> None:
    wrong = {"name": "q", "wrong": "the sums are wrong", "refused": None}
    (check,) = compared("kernels", reply(answered(1)), reply(wrong))
    assert (check.status, check.reason) == ("fail", "bare+proxy: the sums are wrong")
    (check,) = compared("kernels", reply(wrong), reply(wrong))
    assert check.status == "fail"


def test_what_neither_side_supports_is_skipped_and_other_refusals_fail() -> None:
    refused = {"name": "q", "wrong": "cuMemPoolCreate: CUDA error 801", "refused": 801}
    (check,) = compared("pools", reply(refused), reply(refused))
    assert (check.status, check.reason) == ("skipped", "neither side supports it: cuMemPoolCreate: CUDA error 801")
    lost = {"name": "q", "wrong": "cuMemAlloc: CUDA error 999", "refused": 999}
    assert compared("pools", reply(lost), reply(lost))[0].status == "fail"
    assert compared("pools", reply(answered(1)), reply(refused))[0].status == "fail"


def test_a_side_that_dies_fails_with_the_question_that_it_was_asked() -> None:
    died = Reply(failure="the worker was killed by signal 11 before it answered", last="[2] tools")
    checks = compared("table-hooks", reply(answered(0)), died)
    assert [check.status for check in checks] == ["fail", "fail"]
    assert "at '[2] tools': the worker was killed by signal 11" in checks[0].reason


def test_equal_answers_without_evidence_do_not_count() -> None:
    same = answered(1)
    (first, second) = compared("copies", reply(same), reply(same, evidence={"active": False, "reasons": ["no proxy"]}))
    assert (first.status, second.status) == ("fail", "pass")
    assert first.reason == "bare+proxy was not what it claims to be: no proxy"
    assert not is_equal([first, second])


def test_a_question_that_one_side_did_not_reach_fails() -> None:
    checks = compared("fills", reply(answered(1), answered(2, "r")), reply(answered(1)))
    assert [(check.name, check.status) for check in checks] == [("q", "pass"), ("r", "fail")]


def test_documented_and_skipped_checks_are_equal_and_all_are_counted() -> None:
    checks = [Check("g", "a", "pass"), Check("g", "b", "documented"), Check("g", "c", "skipped")]
    assert is_equal(checks)
    assert counts(checks) == {"fail": 0, "different": 0, "documented": 1, "skipped": 1, "pass": 1}
    assert not is_equal([*checks, Check("g", "d", "different")])


def test_long_answers_are_cut_in_words_and_keys_are_named() -> None:
    text = first_difference({"900": "x" * 500, "1": "same"}, {"900": None, "1": "same"})
    assert text.startswith("at 900: bare 'xxx")
    assert len(text) < 250
