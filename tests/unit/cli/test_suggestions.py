"""A name that others use leads to ours; a name that nobody could mean leads nowhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from gputax import api
from gputax.cli.duet import duet
from gputax.cli.main import main
from gputax.cli.verbs import SYNONYMS as VERB_SYNONYMS
from gputax.cli.verbs import VERBS
from gputax.errors import ResultsError, UsageError, unknown_name
from gputax.places import ENVIRONMENTS, LOCAL_ENVIRONMENTS, LOCAL_SYNONYMS
from gputax.places import SYNONYMS as PLACE_SYNONYMS
from gputax.plan.budgets import SYNONYMS as BUDGET_SYNONYMS
from gputax.plan.budgets import parse_budget
from gputax.plan.cells import (
    DEVICE_SYNONYMS,
    DEVICES,
    PRECISION_SYNONYMS,
    PRECISIONS,
    SCENARIO_SYNONYMS,
    SCENARIOS,
    scenario_named,
)
from gputax.plan.engines import SYNONYMS as ENGINE_SYNONYMS
from gputax.plan.engines import parse_engine
from gputax.plan.techniques import SYNONYMS as TECHNIQUE_SYNONYMS
from gputax.plan.techniques import TECHNIQUES
from gputax.plan.workloads import SYNONYMS as WORKLOAD_SYNONYMS
from gputax.plan.workloads import WORKLOADS, known_names

# What was typed, and what is suggested for it.
TYPED: list[tuple[list[str], Mapping[str, str]]] = [
    ([], VERB_SYNONYMS),
    (["run", "--env"], PLACE_SYNONYMS),
    (["duet", "bare"], PLACE_SYNONYMS),
    (["run", "--device"], DEVICE_SYNONYMS),
    (["duet", "bare", "bare", "--device"], DEVICE_SYNONYMS),
    (["share", "--device"], DEVICE_SYNONYMS),
    (["client", "--device"], DEVICE_SYNONYMS),
    (["run", "--precision"], PRECISION_SYNONYMS),
    (["run", "--engine"], ENGINE_SYNONYMS),
    (["share", "--engine"], ENGINE_SYNONYMS),
    (["run", "--scenario"], SCENARIO_SYNONYMS),
    (["duet", "bare", "bare", "--scenario"], SCENARIO_SYNONYMS),
    (["run", "--workload"], WORKLOAD_SYNONYMS),
    (["client", "--workload"], WORKLOAD_SYNONYMS),
    (["share", "--tech"], TECHNIQUE_SYNONYMS),
]


@pytest.mark.parametrize(
    ("words", "meant"),
    [([*words, name], meant) for words, synonyms in TYPED for name, meant in synonyms.items()],
    ids=" ".join,
)
def test_what_others_call_it_is_suggested(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_every_suggestion_works() -> None:
    assert {*VERB_SYNONYMS.values()} <= {*VERBS, "--help", "--version"}
    assert {*PLACE_SYNONYMS.values()} <= {*ENVIRONMENTS}
    assert {*LOCAL_SYNONYMS.values()} <= {*LOCAL_ENVIRONMENTS}
    assert {*DEVICE_SYNONYMS.values()} <= {*DEVICES}
    assert {*PRECISION_SYNONYMS.values()} <= {*PRECISIONS}
    assert {*SCENARIO_SYNONYMS.values()} <= {*SCENARIOS}
    assert {*TECHNIQUE_SYNONYMS.values()} <= {*TECHNIQUES}
    assert {*WORKLOAD_SYNONYMS.values()} <= {*known_names(tuple(WORKLOADS))}
    for engine in ENGINE_SYNONYMS.values():
        parse_engine(engine)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Offline", "offline"),
        ("SingleStream", "single-stream"),
        ("single_stream", "single-stream"),
        ("MultiStream", "multi-stream"),
        ("Server", "server"),
        ("saturate", "saturate"),
    ],
)
def test_scenarios_are_accepted_as_loadgen_and_our_json_spell_them(
    typed: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scenario_named(typed) == name
    assert main(["run", "--scenario", typed, "--dry-run", "--json"]) == 0
    assert f'"scenario": "{name}"' in capsys.readouterr().out


def test_two_spellings_of_one_scenario_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--scenario", "Offline,offline", "--dry-run"]) == 2
    assert "each may be given once" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "name"), BUDGET_SYNONYMS.items())
def test_budgets_are_accepted_by_the_short_names_of_metrics(typed: str, name: str) -> None:
    assert parse_budget(f"{typed}=2%")[0] == name
    assert parse_budget(f"{typed.upper()}=2%")[0] == name


def test_p99_takes_milliseconds() -> None:
    name, budget = parse_budget("p99=2ms")
    assert (name, budget.value, budget.unit) == ("latency_p99", 2.0, "ms")


@pytest.mark.parametrize("text", ["p98=2ms", "speed=5%", "docker=1%"])
def test_unknown_budget_names_are_errors(text: str) -> None:
    with pytest.raises(UsageError, match="unknown metric, layer or environment"):
        parse_budget(text)


@pytest.mark.parametrize("name", ["zzz", "quantum", ""])
def test_a_name_that_nobody_could_mean_gets_no_suggestion(name: str) -> None:
    assert "did you mean" not in unknown_name("environment", name, ENVIRONMENTS).next_step


def test_the_beginning_of_a_name_is_enough() -> None:
    assert "did you mean 'bert-large'?" in unknown_name("workload", "bert", WORKLOADS).next_step


def test_an_empty_workload_is_said_to_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--workload", ""]) == 2
    assert "gputax: --workload is empty" in capsys.readouterr().err


def test_a_duet_says_that_a_budget_is_for_a_layer_it_does_not_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*words: object, **options: object) -> None:
        raise ResultsError("measured")

    monkeypatch.setattr(api, "duet", measured)
    found = CliRunner().invoke(duet, ["bare", "container", "--budget", "xen=8%", "--budget", "container=4%"])
    assert isinstance(found.exception, ResultsError)
    assert found.stderr.count("was not used") == 1
    assert "gputax: the budget for xen was not used" in found.stderr


@pytest.mark.parametrize(("typed", "meant"), [("kubernets", "k8s"), ("kubernetse", "k8s"), ("dokcer", "container")])
def test_a_misspelt_word_of_the_trade_is_understood(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--env", typed]) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err
