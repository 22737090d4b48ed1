"""Which technique and how many tenants: yes only where the whole interval holds, and doubt is spelled out."""

from __future__ import annotations

import json

import pytest

from gputax.advise.advice import Advice, advise
from gputax.advise.rows import Row
from gputax.advise.table import from_record, published_table
from gputax.advise.targets import Question, parse_targets
from gputax.advise.wording import answer, model_lines, notes
from gputax.errors import ResultsError, UsageError
from gputax.report.advice import ADVICE_SCHEMA_VERSION, advice_data
from gputax.results.documents.sharing import SharedCell
from tests.builders.sharing_records import cell, cells, contention, partition, record, turns


def asked(*slo: str, **more: object) -> Question:
    return Question(parse_targets(slo), **more)  # type: ignore[arg-type]


def published(*slo: str, only: tuple[int, ...] = (), **more: object) -> Advice:
    return advise(published_table("a100-nos"), asked(*slo, **more), only)


def measured(found: list[SharedCell], *slo: str, device: str = "cpu", **more: object) -> Advice:
    return advise(from_record(record(*found, device=device)), asked(*slo, **more))


def verdicts(advice: Advice, technique: str) -> dict[int, str]:
    return {row.tenants: row.meets for row in advice.rows if row.technique == technique}


def row_of(advice: Advice, technique: str, tenants: int) -> Row:
    return next(row for row in advice.rows if (row.technique, row.tenants) == (technique, tenants))


def test_the_most_tenants_win_and_every_row_says_what_it_rests_on() -> None:
    advice = published("mean=200ms", up_to=14)
    best = advice.best()
    assert best is not None
    assert (best.technique, best.tenants, best.basis) == ("mps", 3, "measured")
    bases = {row.tenants: row.basis for row in advice.rows if row.technique == "time-slicing"}
    assert [count for count, basis in bases.items() if basis == "measured"] == [1, 3, 5, 7]
    assert [count for count, basis in bases.items() if basis == "interpolated"] == [2, 4, 6]
    assert [count for count, basis in bases.items() if basis == "extrapolated"] == [8]
    assert max(row.tenants for row in advice.rows if row.technique == "mig") == 7, "there are 7 slices"


def test_yes_needs_the_upper_bound_and_no_the_lower_one() -> None:
    advice = published("mean=200ms")
    row = next(row for row in advice.rows if (row.technique, row.tenants) == ("mps", 4))
    (figure,) = row.figures
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low < 200.0 < figure.high
    assert row.meets == "unsure"
    assert verdicts(advice, "mps")[3] == "yes"
    assert verdicts(advice, "mps")[5] == "no"


def test_cost_and_throughput_of_the_published_table() -> None:
    advice = published("mean=330ms", price_per_h=3.6, currency="USD")
    best = advice.best(measured=True)
    assert best is not None
    assert best.technique == "mps"
    assert best.tenants == 7
    assert best.aggregate_per_s[0] == pytest.approx(7 / 0.3198, rel=0.01)
    assert best.cost_per_million == pytest.approx(3.6 / 3600 / (7 / 0.3198) * 1e6, rel=0.01)
    assert "USD per million inferences" in answer(advice)


def test_a_rate_of_each_tenant_is_a_target_too_and_sets_what_is_paid_for() -> None:
    advice = published("mean=400ms", rate_per_s=2.85, price_per_h=3.6)
    assert verdicts(advice, "mps")[7] == "yes"
    assert verdicts(advice, "time-slicing")[5] == "no"
    best = advice.best()
    assert best is not None
    assert best.cost_per_million == pytest.approx(3.6 / 3600 / (best.tenants * 2.85) * 1e6)
    assert advise(published_table("a100-nos"), asked(rate_per_s=2.0)).meets == "yes"


def test_an_extrapolated_answer_says_so_and_names_the_best_given_one() -> None:
    advice = published("mean=400ms", up_to=8)
    best = advice.best()
    assert best is not None
    assert best.basis == "extrapolated"
    assert answer(advice).startswith("MPS with 8 tenants (extrapolated) meets mean ≤ 400 ms: model mean 356.7 ms")
    assert "Of what was published: MPS with 7 tenants, published mean 319.8 ms (model 318.3, " in answer(advice)


def test_what_was_published_is_given_as_published_and_the_model_beside_it() -> None:
    advice = published("mean=330ms", price_per_h=3.6)
    assert "meets mean ≤ 330 ms: published mean 319.8 ms (model 318.3, 310.3 to 326.5), 21.89" in answer(advice)
    row = row_of(advice, "mps", 7)
    assert row.figures[0].measured == pytest.approx(319.8182253208076)
    assert row.figures[0].value == pytest.approx(318.3, abs=0.05)
    assert row.per_s == row.measured_per_s == pytest.approx(7 / 0.3198182253208076)
    assert row.aggregate_per_s[0] == pytest.approx(21.99, abs=0.005)
    assert row.cost_per_million == pytest.approx(3.6 / 3600 / (7 / 0.3198182253208076) * 1e6)


def test_measured_throughput_is_what_was_counted_and_the_models_stands_beside_it() -> None:
    found = [
        each.model_copy(update={"aggregate_per_s": 0.9 * each.aggregate_per_s}) if each.tenants == 7 else each
        for each in cells("mps", contention(), noise=0.0)
    ]
    row = row_of(measured(found, "mean=1s", device="cuda", price_per_h=1.0), "mps", 7)
    assert row.measured_per_s is not None
    assert row.measured_per_s == pytest.approx(0.9 * 7 * 1000 / contention()(7))
    assert row.aggregate_per_s[0] > 1.05 * row.measured_per_s
    assert row.cost_per_million == pytest.approx(1.0 / 3600 / row.measured_per_s * 1e6)


def test_only_measured_numbers_and_those_between_are_judged_unless_more_are_asked_for() -> None:
    assert [row.tenants for row in published("mean=10s").rows] == 3 * [1, 2, 3, 4, 5, 6, 7]
    found = cells("mps", contention())
    assert max(row.tenants for row in measured(found, "mean=10s").rows) == 7
    assert max(row.tenants for row in measured(found, "mean=10s", up_to=9).rows) == 9
    assert max(row.tenants for row in published("mean=10s", only=(1, 3)).rows) == 7, "7 were measured"


def test_there_is_no_advice_beyond_the_memory() -> None:
    advice = published("mean=10s", up_to=14)
    assert {each.technique: each.tenants for each in advice.rows} == {"time-slicing": 8, "mps": 8, "mig": 7}
    assert answer(advice).startswith("MPS with 8 tenants (extrapolated) meets")
    assert "MPS: no room for more than 8 tenants (10 GB each of 80 GB)." in answer(advice)
    assert "no room" not in answer(published("mean=10s"))


def starved(found: list[SharedCell], tenants: int, times: float) -> list[SharedCell]:
    """Let the last of so many tenants wait so many times as long, and the others hide it by their number."""
    changed = []
    for each in found:
        if each.tenants == tenants:
            *others, last = each.results
            mean_ms = times * last.mean_ms
            last = last.model_copy(
                update={
                    "mean_ms": mean_ms, "p50_ms": mean_ms, "p90_ms": None, "p99_ms": None, "inferences": 20,
                    "throughput_per_s": 1000 / mean_ms,
                }
            )  # fmt: skip
            pooled = {f"{name}_ms": getattr(others[0], f"{name}_ms") for name in ("mean", "p50", "p90", "p99")}
            each = each.model_copy(update={"results": (*others, last), **pooled})
        changed.append(each)
    return changed


def test_a_starved_tenant_is_not_hidden_in_the_mean_of_all() -> None:
    found = starved(cells("mps", contention(), noise=0.005), 7, 5.0)
    advice = measured(found, "mean=50ms", device="cuda")
    row = row_of(advice, "mps", 7)
    assert (row.measured_ms or 99) < 50, "the mean of all would meet it"
    assert row.figures[0].measured == pytest.approx(5 * contention()(7), rel=0.01)
    assert row.meets == "no"
    assert verdicts(advice, "mps")[5] == "yes", "five tenants were served alike"
    assert verdicts(advice, "mps")[6] == "unsure", "nobody knows from which number on a tenant starves"
    assert answer(advice).startswith("MPS with 5 tenants meets mean ≤ 50 ms: measured mean of the worst tenant 2")
    assert "MPS with 7 tenants: the overall mean, 3" in answer(advice)
    assert "ms, would meet it, but the worst tenant's is 1" in answer(advice)
    assert verdicts(measured(found, "mean=50ms", device="cuda", up_to=8), "mps")[8] == "no"


@pytest.mark.parametrize("statistic", ["p50", "p90", "p99"])
def test_a_starved_tenant_is_not_hidden_in_a_percentile_of_all(statistic: str) -> None:
    found = starved(cells("mps", contention(), noise=0.005), 7, 5.0)
    advice = measured(found, f"{statistic}=80ms", device="cuda")
    assert verdicts(advice, "mps")[7] == "no"
    assert verdicts(advice, "mps")[5] == "yes"
    guessed = [notice.code for notice in advice.considered[0].uneven[0].notices]
    assert guessed == ([] if statistic == "p50" else ["worst-tenant-guessed"])


def test_a_rate_is_held_against_the_slowest_tenant() -> None:
    found = starved(cells("mps", contention(), noise=0.005), 7, 5.0)
    advice = measured(found, device="cuda", rate_per_s=20.0)
    row = row_of(advice, "mps", 7)
    assert row.figures[0].measured == pytest.approx(1000 / (5 * contention()(7)), rel=0.01)
    assert row.meets == "no"
    assert verdicts(advice, "mps")[5] == "yes"
    (six,) = row_of(advice, "mps", 6).figures
    assert six.value == pytest.approx(1000 / (5 * contention()(6)), rel=0.01), "at worst as with 7"
    assert six.high == pytest.approx(1000 / contention()(6), rel=0.03), "at best as with 5"
    assert six.meets == "unsure"
    even = measured(cells("mps", contention(), noise=0.005), device="cuda", rate_per_s=20.0)
    assert verdicts(even, "mps")[7] == "yes"


def test_the_cheapest_is_named_where_it_is_another_one() -> None:
    found = [*cells("time-slicing", turns()), *cells("mps", contention(30.0, 0.1), tenants=(1, 3))]
    text = answer(measured(found, "mean=60ms", device="cuda"))
    assert text.startswith("Time-slicing with 5 tenants")
    assert "Cheapest per inference: Time-slicing with 1 tenant" in text or "Cheapest per inference: MPS" in text


def test_nothing_meets_it() -> None:
    advice = published("mean=50ms")
    assert advice.meets == "no"
    assert advice.best() is None
    assert "Nothing meets mean ≤ 50 ms. Nearest: MPS with 1 tenant" in answer(advice)


def test_without_an_interval_the_value_is_judged_where_a_run_had_so_many_tenants_and_that_is_said() -> None:
    advice = published("mean=300ms", only=(1, 3))
    assert verdicts(advice, "mps") == {
        1: "yes", 2: "unsure", 3: "yes", 4: "unsure", 5: "yes", 6: "unsure", 7: "no",
    }  # fmt: skip
    assert verdicts(advice, "time-slicing") == {1: "yes", 2: "unsure", 3: "yes", 4: "no", 5: "no", 6: "no", 7: "no"}
    assert answer(advice).startswith(
        "MPS with 5 tenants (not used in the fit) meets mean ≤ 300 ms by its value, without an interval: "
        "published mean 240.9 ms (model 240.0, no interval)"
    )
    assert any(line.startswith("no interval: the uncertainty of the model is unknown") for line in notes(advice))


def test_a_row_left_out_of_the_fit_is_judged_by_the_models_interval() -> None:
    row = row_of(published("mean=342ms", only=(1, 3)), "mig", 5)
    (figure,) = row.figures
    assert (row.basis, row.measured_ms) == ("left out", pytest.approx(345.3250103939391))
    assert figure.has_interval
    assert row.meets == "unsure"
    assert row_of(published("mean=360ms", only=(1, 3)), "mig", 5).meets == "yes"
    assert row_of(published("mean=320ms", only=(1, 3)), "mig", 5).meets == "no"


def test_model_and_measurement_on_different_sides_are_unsure() -> None:
    row = row_of(published("mean=318ms", only=(1, 3)), "mps", 7)
    assert (row.figures[0].value < 318.0, (row.measured_ms or 0.0) > 318.0) == (True, True)
    assert row.meets == "unsure"
    assert row.why_unsure == "the model and the measurement disagree about the target"


@pytest.mark.parametrize(
    ("only", "said"),
    [((2, 4), "2 and 4 were never measured; measured: 1, 3, 5 and 7"), ((1, 2), "2 was never measured")],
)
def test_a_fit_to_what_was_never_measured_says_what_was(only: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        advise(from_record(record(*cells("mps", contention()))), asked("mean=30ms"), only)
    assert raised.value.next_step == "e.g. --fit 1,3"


def test_percentiles_that_the_source_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="only means, so p99 cannot be estimated") as raised:
        published("p99=50ms")
    assert "--slo mean=" in raised.value.next_step
    with pytest.raises(ResultsError, match="no run had enough samples for p99") as raised_too:
        measured(cells("mps", contention(), tail=None), "p99=50ms")
    assert "longer --window" in raised_too.value.next_step


def test_a_percentile_is_predicted_by_its_ratio() -> None:
    advice = measured(cells("mps", contention(), tail=1.5), "p99=40ms", device="cuda")
    rows = {row.tenants: row.figures[0] for row in advice.rows}
    for tenants in (1, 4, 7):
        assert rows[tenants].value == pytest.approx(1.5 * contention()(tenants), rel=0.03)
        assert (rows[tenants].high or 0) / rows[tenants].value > 1.035, "the ratio's spread is in the interval"
    assert rows[3].measured == pytest.approx(1.5 * 18, rel=0.03)
    assert rows[4].measured is None
    assert verdicts(advice, "mps")[4] == "yes"
    assert verdicts(advice, "mps")[7] == "no"


def test_all_targets_must_hold() -> None:
    found = cells("mps", contention(), tail=1.5)
    assert verdicts(measured(found, "mean=1s", "p99=40ms"), "mps")[7] == "no"
    assert verdicts(measured(found, "mean=1s", "p99=1s"), "mps")[7] == "yes"


def test_a_technique_that_cannot_be_modelled_does_not_hide_the_others() -> None:
    advice = measured([*cells("mps", contention()), cell("mig", 7, 1, 40.0)], "mean=30ms")
    assert [each.model.technique.name for each in advice.considered] == ["mps"]
    assert any("No model of MIG" in line and "gputax share --tech mig" in line for line in notes(advice))


def test_nothing_to_model_is_an_error_with_the_next_command() -> None:
    with pytest.raises(ResultsError, match="no valid cell"):
        measured([cell("mps", 1, 1, 10.0, valid=False)], "mean=30ms")
    with pytest.raises(ResultsError, match="no technique can be modelled") as raised:
        measured([cell("mps", 3, 1, 10.0)], "mean=30ms")
    assert raised.value.next_step == "gputax share --tech mps --tenants 1,3,5,7"


def test_an_unchecked_form_is_believed_at_measured_numbers_only() -> None:
    advice = measured(cells("time-slicing", turns(), tenants=(1, 3)), "mean=100ms", device="cuda", up_to=6)
    assert verdicts(advice, "time-slicing") == {1: "yes", 2: "unsure", 3: "yes", 4: "unsure", 5: "unsure", 6: "unsure"}
    assert all("not confirmed" in row.why_unsure for row in advice.rows if row.meets == "unsure")


def test_a_trend_in_the_percentile_is_not_carried_beyond_the_measured() -> None:
    growing = [
        cell("mps", count, run, contention()(count), tail=1.2 + 0.02 * count + run / 1000)
        for count in (1, 3, 5, 7)
        for run in (1, 2, 3)
    ]
    advice = measured(growing, "p99=10s", device="cuda", up_to=8)
    assert verdicts(advice, "mps")[7] == "yes"
    assert verdicts(advice, "mps")[8] == "unsure"


def test_more_than_twice_the_measured_is_never_a_yes() -> None:
    advice = measured(cells("mps", contention()), "mean=10s", device="cuda", up_to=20)
    assert verdicts(advice, "mps")[14] == "yes"
    assert verdicts(advice, "mps")[15] == "unsure"


def test_a_measured_miss_is_not_explained_away_by_the_model() -> None:
    off = {6: 1.05}
    found = [cell("mps", count, 1, contention()(count) * off.get(count, 1.0)) for count in range(1, 13)]
    limit_ms = 1.045 * contention()(6)
    advice = measured(found, f"mean={limit_ms}ms", device="cuda")
    row = next(row for row in advice.rows if row.tenants == 6)
    assert row.measured_ms == pytest.approx(1.05 * contention()(6))
    assert (row.mean_ms[2] or 0) < limit_ms, "the model alone would say yes"
    assert row.meets == "unsure"


def test_numbers_without_a_gpu_keep_their_label_in_the_answer() -> None:
    advice = measured(cells("cpu-shared", contention()), "mean=30ms")
    assert answer(advice).endswith("this is valid only for the stand-in and says nothing about a GPU.")
    assert "Claim: CPU number, not a GPU's." in notes(advice)
    assert "stand-in" not in answer(measured(cells("mps", contention()), "mean=30ms", device="cuda"))


def test_batches_are_in_the_throughput() -> None:
    found = [
        each.model_copy(update={"aggregate_per_s": 8 * each.aggregate_per_s}) for each in cells("mps", contention())
    ]
    advice = measured(found, "mean=1s")
    row = next(row for row in advice.rows if row.tenants == 7)
    assert row.aggregate_per_s[0] == pytest.approx(8 * 7 * 1000 / contention()(7), rel=0.02)
    assert any("throughput is 8 x tenants" in line for line in notes(advice))


def test_the_document_is_versioned_json_with_every_row() -> None:
    advice = measured([*cells("mps", contention()), *cells("mig", partition())], "p99=40ms", price_per_h=2.0)
    data = json.loads(json.dumps(advice_data(advice), allow_nan=False))
    assert data["schema_version"] == ADVICE_SCHEMA_VERSION
    assert data["kind"] == "advice"
    assert data["answer"] == answer(advice)
    assert [row["tenants"] for row in data["rows"] if row["technique"] == "mps"] == list(range(1, 8))
    seven = data["rows"][6]
    assert (seven["judged_by"], seven["figures"][0]["of_worst_tenant"]) == ("interval", True)
    assert seven["measured_per_s"] == pytest.approx(7 * 1000 / contention()(7), rel=0.02)
    assert {model["form"] for model in data["models"]} == {"contention", "partition"}
    for model in data["models"]:
        for parameter in model["parameters"].values():
            low, high = parameter["ci95"]
            assert low < parameter["value"] < high


def test_without_intervals_the_document_has_nulls_and_no_nan() -> None:
    data = advice_data(published("mean=300ms", only=(1, 3)))
    json.dumps(data, allow_nan=False)
    assert data["rows"][0]["mean_ms"]["ci95"] is None
    assert (data["meets"], data["rows"][0]["judged_by"]) == ("yes", "value, no interval")
    assert data["models"][0]["held_out"][0]["tenants"] == 5


def test_the_models_are_told_with_parameters_residuals_and_predictions() -> None:
    (first, *_) = published("mean=300ms", only=(1, 3)).considered
    text = "\n".join(model_lines(first))
    assert "loss from switching 10.85 % (no interval)" in text
    assert "5 tenants 488.6 ms for 489.0 (-0.1 %); 7 tenants 684.0 ms for 684.9 (-0.1 %)" in text
    assert "no point is left to check the form" in text
