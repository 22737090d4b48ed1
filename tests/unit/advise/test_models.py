"""A technique gets the form of its nature, data may contradict it aloud, and too few points are refused."""

from __future__ import annotations

import pytest

from gputax.advise.models import Fitted, Refused, fit_or_refuse, forms_for
from gputax.advise.table import from_record, published_table
from gputax.plan.techniques import TECHNIQUES
from tests.builders.sharing_records import Latency, cell, cells, contention, fit_all, partition, record, turns


def only(*found: Fitted | Refused) -> Fitted:
    (fitted,) = found
    assert isinstance(fitted, Fitted)
    return fitted


def codes(fitted: Fitted) -> list[str]:
    return [notice.code for notice in fitted.notices]


@pytest.mark.parametrize(
    ("technique", "forms"),
    [
        ("time-slicing", ["turns"]), ("mps", ["contention"]), ("mig", ["partition"]), ("cpu-quota", ["partition"]),
        ("cpu-shared", ["contention", "turns"]), ("proxy", ["contention", "turns"]), ("exclusive", ["partition"]),
    ],
)  # fmt: skip
def test_the_form_follows_the_nature_of_the_technique(technique: str, forms: list[str]) -> None:
    assert [form.name for form in forms_for(TECHNIQUES[technique])] == forms


def test_every_technique_has_a_form() -> None:
    assert all(forms_for(technique) for technique in TECHNIQUES.values())


@pytest.mark.parametrize(("latency", "form"), [(turns(loss=0.3), "turns"), (contention(), "contention")])
def test_where_nature_leaves_two_forms_the_left_out_points_choose_and_it_is_said(latency: Latency, form: str) -> None:
    fitted = only(*fit_all(record(*cells("cpu-shared", latency))))
    assert fitted.fit.form.name == form
    assert "chosen by its leave-one-out error (contention " in fitted.choice


def test_two_points_cannot_choose_and_that_is_said() -> None:
    fitted = only(*fit_all(record(*cells("cpu-shared", turns(), tenants=(1, 3)))))
    assert "too few points to choose" in fitted.choice
    assert codes(fitted) == ["form-not-checked"]
    assert not fitted.form_checked


def test_data_that_contradict_a_techniques_nature_are_not_bent_to_it_in_silence() -> None:
    fitted = only(*fit_all(record(*cells("time-slicing", contention()))))
    assert fitted.fit.form.name == "turns"
    assert codes(fitted) == ["lack-of-fit", "better-form"]
    assert "the form contention has a smaller leave-one-out error" in fitted.notices[1].text
    assert not fitted.form_checked


def test_a_slice_that_does_not_isolate_is_said() -> None:
    fitted = only(*fit_all(record(*cells("cpu-quota", contention(40.0, 0.2)))))
    assert "lack-of-fit" in codes(fitted)


def test_good_data_have_nothing_to_note() -> None:
    for technique, latency in (("time-slicing", turns()), ("mps", contention()), ("mig", partition())):
        assert codes(only(*fit_all(record(*cells(technique, latency))))) == []


@pytest.mark.parametrize(
    ("technique", "tenants", "needs", "next_step"),
    [
        ("mps", (3,), "a number of tenants other than 3", "gputax share --tech mps --tenants 1,3,5,7"),
        ("time-slicing", (4, 6), "1 tenant", "gputax share --tech time-slicing --tenants 1,3,4,6"),
        ("mig", (7,), "a number of tenants other than 7", "gputax share --tech mig --tenants 1,3,5,7"),
        ("cpu-shared", (1,), "a number of tenants other than 1", "--tech cpu-shared --tenants 1,3,5,7"),
    ],
)
def test_too_few_points_are_refused_with_what_to_measure_next(
    technique: str, tenants: tuple[int, ...], needs: str, next_step: str
) -> None:
    (refused,) = fit_or_refuse(record(*cells(technique, partition(), tenants=tenants)))
    assert isinstance(refused, Refused)
    assert needs in refused.why
    assert next_step in refused.next_step
    assert fit_all(record(*cells(technique, partition(), tenants=tenants))) == ()


def test_exclusive_is_one_tenant_and_needs_no_other() -> None:
    fitted = only(*fit_all(record(*cells("exclusive", partition(), tenants=(1,)), device="cuda")))
    assert [point.tenants for point in fitted.curve(range(1, 5))] == [1]
    assert codes(fitted) == []


def test_slices_of_several_sizes_are_not_one_partition() -> None:
    found = cells("mig", partition(), tenants=(1, 3), repeats=1)
    smaller = found[0].results[0].model_copy(update={"entitlement_share": 0.5, "entitlement": "3g.40gb"})
    (refused,) = fit_or_refuse(record(found[0].model_copy(update={"results": (smaller,)}), found[1]))
    assert isinstance(refused, Refused)
    assert "different sizes" in refused.why


def test_the_curve_marks_what_lies_beyond_the_measured_and_ends_where_there_is_no_room() -> None:
    shared, sliced = fit_all(record(*cells("mps", contention()), *cells("mig", partition())))
    marks = {point.tenants: point.extrapolated for point in shared.curve([1, 2, 7, 8, 14])}
    assert marks == {1: False, 2: False, 7: False, 8: True, 14: True}
    assert [point.tenants for point in sliced.curve([0, 1, 7, 8])] == [1, 7]
    for count, value, low, high, _ in shared.curve([1, 4, 14]):
        assert low is not None
        assert high is not None
        assert low < value < high
        assert value == pytest.approx(contention()(count), rel=0.02)


def test_the_interval_grows_beyond_the_measured() -> None:
    (fitted,) = fit_all(record(*cells("mps", contention())))
    widths = [(high or 0) / (low or 1) for _, _, low, high, _ in fitted.curve([7, 14, 40])]
    assert widths == sorted(widths)


def test_a_fit_to_some_points_is_checked_by_the_others() -> None:
    fitted = fit_all(published_table("a100-nos"), (1, 3))
    assert {each.technique.name: [held.tenants for held in each.held_out] for each in fitted} == {
        "time-slicing": [5, 7], "mps": [5, 7], "mig": [5, 7],
    }  # fmt: skip
    assert all(each.extrapolates(5) for each in fitted), "what the fit has not seen is extrapolated, measured or not"


def test_a_fit_to_points_that_are_not_there_is_refused() -> None:
    (refused,) = fit_or_refuse(record(*cells("mps", contention())), (2, 4))
    assert isinstance(refused, Refused)
    assert "1,3,5,7 were measured" in refused.next_step


def test_a_record_and_its_table_give_the_same_models() -> None:
    made = record(*cells("mps", contention()))
    assert fit_all(made)[0].fit.theta == fit_all(from_record(made))[0].fit.theta


def test_one_run_of_each_says_that_the_interval_comes_from_the_residuals() -> None:
    fitted = only(*fit_all(record(*(cell("mps", count, 1, contention()(count) * 1.001**count) for count in (1, 3, 5)))))
    assert codes(fitted) == ["no-spread"]
    assert "from the residuals" in fitted.notices[0].text
