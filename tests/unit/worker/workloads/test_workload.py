"""Seeded numbers are the same everywhere, in any order, and spread as declared."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gputax.worker.workloads import load_workload
from gputax.worker.workloads.workload import Parameter, Workload, integers, parameter_values, seeded_state, ticks


def test_values_are_the_same_bytes_on_every_machine() -> None:
    values = parameter_values(Parameter("a.weight", (3, 5), std=0.1, mean=1.0), seed=7)
    assert values.dtype == np.float32
    # Taken once; another digest means that every cached model and every stored sha256 changes: raise SEEDING.
    assert (
        hashlib.sha256(values.tobytes()).hexdigest()
        == "e6642a9bed6e99ada0afc39077597016463c4ccc80d1d221c5e91d869d9ed369"
    )


def test_a_parameter_depends_on_seed_and_name_alone(small_bert: Workload) -> None:
    forward = seeded_state(small_bert, seed=3)
    for parameter in reversed(small_bert.parameters):
        np.testing.assert_array_equal(parameter_values(parameter, 3), forward[parameter.name])
    first, second = small_bert.parameters[0], Parameter("other", small_bert.parameters[0].shape, std=1.0)
    assert not np.array_equal(parameter_values(first, 3), parameter_values(first, 4))
    assert np.corrcoef(parameter_values(first, 3).ravel(), parameter_values(second, 3).ravel())[0, 1] < 0.1


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.02), (1.0, 0.05), (0.25, 1.5)])
def test_values_spread_as_declared(mean: float, std: float) -> None:
    values = parameter_values(Parameter("p", (400, 100), std=std, mean=mean), seed=1)
    assert values.mean() == pytest.approx(mean, abs=std / 50)
    assert values.std() == pytest.approx(std, rel=0.02)


def test_running_variances_stay_near_one() -> None:
    for parameter in load_workload("resnet50").parameters:
        if parameter.name.endswith("running_var"):
            values = parameter_values(parameter, 7)
            assert values.min() > 0.9
            assert values.max() < 1.1


def test_integers_fill_their_range() -> None:
    values = integers(7, "k", 10_000, 3, 9)
    assert set(values.tolist()) == {3, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("fixture", ["small_resnet", "small_bert", "small_yolos"])
def test_a_sample_is_the_same_whatever_the_count(fixture: str, request: pytest.FixtureRequest) -> None:
    workload: Workload = request.getfixturevalue(fixture)
    few, many = workload.synthetic_inputs(2, seed=9), workload.synthetic_inputs(5, seed=9)
    other = workload.synthetic_inputs(2, seed=10)
    for spec in workload.inputs:
        assert many[spec.name].shape == (5, *spec.shape)
        assert many[spec.name].dtype == spec.dtype
        assert many[spec.name].flags.c_contiguous
        np.testing.assert_array_equal(few[spec.name], many[spec.name][:2])
    assert any(not np.array_equal(few[name], other[name]) for name in few)


def test_bert_inputs_look_like_tokenised_questions() -> None:
    inputs = load_workload("bert-large").synthetic_inputs(20, seed=7)
    ids, mask, segments = inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"]
    lengths = mask.sum(axis=1)
    assert lengths.min() >= 128
    assert len(set(lengths.tolist())) > 5
    assert ids.max() < 30522
    assert (ids[:, 0] == 101).all()
    assert ((ids == 102).sum(axis=1) == 2).all()
    assert (ids[mask == 0] == 0).all()
    assert (segments <= mask).all()
    assert (np.diff(mask, axis=1) <= 0).all()
    assert (segments.sum(axis=1) > 0).all()


def test_resnet_inputs_span_what_the_official_preprocessing_gives() -> None:
    pixels = load_workload("resnet50").synthetic_inputs(2, seed=7)["pixel_values"]
    assert pixels[:, 0].min() == pytest.approx(-123.68)
    assert pixels[:, 2].max() == pytest.approx(255 - 103.94)


def test_ticks_of_an_odd_count() -> None:
    assert len(ticks(1, "k", 7)) == 7
    np.testing.assert_array_equal(ticks(1, "k", 7), ticks(1, "k", 100)[:7])
