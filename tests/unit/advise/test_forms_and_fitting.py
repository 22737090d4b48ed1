"""Each form is recovered from its own data, says what it lacks, and never hides what it misses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gputax.advise.fitting import fit, left_out_errors, observe
from gputax.advise.forms import CONTENDED, FORMS, LARGEST_CONTENTION, PARTITION, TURNS, Form
from gputax.errors import ResultsError
from tests.builders.sharing_records import Latency, contention, partition, turns

TRUTHS = [(TURNS, turns(), (10.0, 10.0)), (CONTENDED, contention(), (10.0, 0.4)), (PARTITION, partition(), (40.0,))]
COUNTS = (1, 3, 5, 7)


def exact(latency: Latency, counts: tuple[int, ...] = COUNTS, repeats: int = 1) -> list[tuple[int, list[float]]]:
    return [(count, [latency(count)] * repeats) for count in counts]


@pytest.mark.parametrize(("form", "latency", "parameters"), TRUTHS)
def test_exact_data_give_back_the_parameters(form: Form, latency: Latency, parameters: tuple[float, ...]) -> None:
    fitted = fit(form, observe(exact(latency)))
    shown = [each.shown(value) for each, value in zip(form.parameters, fitted.theta, strict=True)]
    assert shown == pytest.approx(parameters, rel=1e-6)
    assert fitted.residuals_percent == pytest.approx([0.0] * 4, abs=1e-5)
    assert math.exp(fitted.log_ms(20)) == pytest.approx(latency(20), rel=1e-6)


@pytest.mark.parametrize("form", FORMS.values())
def test_the_slopes_are_the_derivatives(form: Form) -> None:
    theta, tenants = np.array([2.0, 0.3])[: len(form.parameters)], np.array([1.0, 2.0, 7.0])
    slopes = form.slopes(theta, tenants)
    for index in range(theta.size):
        step = np.zeros(theta.size)
        step[index] = 1e-6
        numeric = (form.log_latency(theta + step, tenants) - form.log_latency(theta - step, tenants)) / 2e-6
        assert slopes[:, index] == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize(
    ("form", "tenants", "lacks"),
    [
        (TURNS, [], "two numbers"), (TURNS, [1], "a number of tenants other than 1"), (TURNS, [3, 5], "1 tenant"),
        (TURNS, [1, 2], ""), (CONTENDED, [4], "a number of tenants other than 4"), (CONTENDED, [3, 5], ""),
        (PARTITION, [7], "a number of tenants other than 7"), (PARTITION, [1, 7], ""),
    ],
)  # fmt: skip
def test_what_a_form_lacks(form: Form, tenants: list[int], lacks: str) -> None:
    assert lacks in form.lacks(tenants)
    assert bool(form.lacks(tenants)) == bool(lacks)


def test_two_points_without_repeats_have_no_interval() -> None:
    fitted = fit(TURNS, observe(exact(turns(), (1, 3))))
    assert not fitted.has_interval
    assert fitted.uncertainty(5).around(1.0) is None
    assert fitted.parameter(0)[1:] == (None, None)


def test_repeats_give_an_interval_even_where_no_point_is_left_to_check_the_form() -> None:
    fitted = fit(TURNS, observe([(1, [10.0, 10.2]), (3, [33.0, 33.4])]))
    assert fitted.spare_points == 0
    assert fitted.lack_p is None
    low, high = fitted.uncertainty(3).around(fitted.log_ms(3)) or (0.0, 0.0)
    assert low < 33.2 < high


def test_a_shift_that_all_cells_of_a_repeat_share_is_not_averaged_away_by_more_numbers_of_tenants() -> None:
    shifts, noise = (0.9, 1.0, 1.1), (1.001, 0.999, 1.0)
    points = [
        (count, [contention()(count) * shift * noise[(count + at) % 3] for at, shift in enumerate(shifts)])
        for count in (1, 2, 3, 4, 5, 6)
    ]
    together = observe(points, [(1, 2, 3)] * len(points))
    assert together[0].shift.variance == pytest.approx(0.01, rel=0.02)
    assert together[0].shift.freedom == pytest.approx(2.0, abs=0.01)
    assert all(each.own_variance < 1e-5 for each in together)
    fitted, apart = fit(CONTENDED, together), fit(CONTENDED, observe(points))
    # The latency of one tenant is known as well as three repeats know it, the contention far better.
    _, low, high = fitted.parameter(0)
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=0.02)
    _, low, high = fitted.parameter(1)
    assert low is not None
    assert high is not None
    assert high - low < 0.01
    # Of three repeats, two are lost to a new one's shift: t with two degrees of freedom.
    new_run, as_before = fitted.uncertainty(3).half_width(), apart.uncertainty(3).half_width()
    assert new_run is not None
    assert as_before is not None
    assert new_run == pytest.approx(4.303 * 0.1 * math.sqrt(4 / 3), rel=0.02)
    assert as_before < 0.6 * new_run


def test_repeats_that_lack_cells_still_show_their_shift() -> None:
    points = [(1, [9.0, 10.0, 11.0]), (2, [12.6, 14.0]), (4, [22.0, 24.2])]
    observed = observe(points, [(1, 2, 3), (1, 2), (2, 3)])
    assert 0.005 < observed[0].shift.variance < 0.015
    assert all(each.own_variance < 1e-3 for each in observed)
    assert [each.runs for each in observed] == [3, 2, 2]


def test_runs_without_a_repeat_have_nothing_in_common() -> None:
    points = [(1, [9.0, 10.0, 11.0]), (2, [12.6, 14.0, 15.4])]
    assert observe(points, [(None, None, None), (None, None, None)]) == observe(points)
    assert observe(points)[0].shift.variance == 0.0
    assert observe(points, [(1, 2, 3), (1, 2, 3)])[0].shift.variance > 0.0


def test_a_noisy_point_counts_less() -> None:
    quiet = [(1, [10.0, 10.01, 9.99, 10.0, 10.0]), (3, [30.0, 30.01, 29.99, 30.0, 30.0])]
    noisy = [*quiet, (5, [40.0, 80.0, 55.0, 90.0, 60.0])]
    fitted = fit(CONTENDED, observe(noisy))
    _, beside, noisy_one = map(abs, fitted.residuals_percent)
    assert noisy_one > beside, "unweighted, the middle point of three misses most"
    variances = [each.run_variance for each in fitted.observed]
    assert variances[2] > 3 * variances[0], "each point keeps a part of its own spread"


def test_a_wrong_form_is_noticed_and_widens_the_interval() -> None:
    rng = np.random.default_rng(3)
    bent = [(count, list(contention()(count) * np.exp(rng.normal(0, 0.005, 5)))) for count in COUNTS]
    wrong, right = fit(TURNS, observe(bent)), fit(CONTENDED, observe(bent))
    assert wrong.lack_p is not None
    assert wrong.lack_p < 1e-6
    assert right.lack_p is not None
    assert right.lack_p > 0.05
    assert (wrong.uncertainty(9).half_width() or 0) > 10 * (right.uncertainty(9).half_width() or 0)


def test_latency_that_falls_with_tenants_is_no_negative_contention() -> None:
    fitted = fit(CONTENDED, observe([(1, [10.0, 10.1]), (3, [9.9, 9.8]), (7, [9.7, 9.9])]))
    assert fitted.theta[1] == 0.0
    assert math.exp(fitted.theta[0]) == pytest.approx(9.9, rel=0.01)
    assert fitted.parameter(1)[1] == 0.0


def test_growth_beyond_any_contention_ends_at_a_bound_and_not_in_a_traceback() -> None:
    fitted = fit(CONTENDED, observe([(2, [1.0]), (3, [50.0]), (4, [500.0])]))
    assert 0.0 <= fitted.theta[1] <= LARGEST_CONTENTION
    assert np.isfinite(fitted.log_ms(5))


def test_extreme_numbers_stay_finite() -> None:
    fitted = fit(CONTENDED, observe([(1, [1e-9, 1.1e-9]), (1000, [1e9, 1.1e9])]))
    low, high = fitted.uncertainty(2000).around(fitted.log_ms(2000)) or (math.nan, math.nan)
    assert math.isfinite(low)
    assert math.isfinite(high)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_nonsense_is_refused_with_its_place(bad: float) -> None:
    with pytest.raises(ResultsError, match="3 tenants: run 2 of 2"):
        observe([(1, [10.0]), (3, [30.0, bad])])


def test_left_out_errors_ask_only_for_points_that_the_rest_can_predict() -> None:
    assert set(left_out_errors(TURNS, observe(exact(turns())))) == {3, 5, 7}
    assert set(left_out_errors(CONTENDED, observe(exact(turns())))) == {1, 3, 5, 7}
    assert left_out_errors(TURNS, observe(exact(turns(), (1, 3)))) == {}
