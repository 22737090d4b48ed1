"""What CONTRIBUTING says that adding a thing costs: one file or one row is added here, and everything else finds it."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from gputax.api import share_plan
from gputax.cli import verbs
from gputax.cli.main import main
from gputax.environments.bare import Bare
from gputax.environments.environment import Described, Evidence
from gputax.kubernetes.nodes import NodeFacts
from gputax.places import ROWS, Row, environment_named
from gputax.plan import metrics, notices
from gputax.plan.budgets import parse_budget
from gputax.plan.cells import Setup
from gputax.plan.claims import claim
from gputax.plan.engines import ENGINES
from gputax.plan.notices import Kind, Notice
from gputax.plan.suites import load_plan
from gputax.plan.techniques import TECHNIQUES, Entitlement, Technique
from gputax.sharing.bare import BareShared, CpuShared
from gputax.sharing.evidence import technique_evidence
from gputax.sharing.flavours import offer_for
from gputax.sharing.offer import NodeTechnique, Offer, Wish
from gputax.worker.engines.synthetic import SyntheticEngine
from gputax.worker.preparation import prepare
from gputax.worker.probes.limits import CpuAllowance

SOURCE = Path(__file__).resolve().parents[2] / "src/gputax"


class AddedEngine(SyntheticEngine):
    """An engine in a file of its own: this one."""


class AddedEnvironment(Bare):
    """An environment in a file of its own: this one."""


@click.command()
def added() -> int:
    """Do the added thing."""
    click.echo("done")
    return 0


class TestAnEngine:
    @pytest.fixture(autouse=True)
    def _row(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = dataclasses.replace(
            ENGINES["synthetic"], name="added", loads=f"{__name__}:AddedEngine", claim="numbers of the added engine"
        )
        monkeypatch.setitem(ENGINES, "added", kind)

    def test_is_planned_and_loaded_with_its_options(self) -> None:
        (cell,) = load_plan(workloads=("resnet50",), scenarios=("single-stream",), engine="added:latency_us=10")
        prepared = prepare(cell.setup, lambda text: None)
        assert isinstance(prepared.engine, AddedEngine)
        assert prepared.facts["options"]["latency_us"] == 10.0

    def test_says_what_its_numbers_are(self) -> None:
        said = claim("offline", "added", "cpu", "seeded", official=False, is_mlperf_model=True)
        assert said == "numbers of the added engine"


class TestAnEnvironment:
    def test_is_started_by_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = dataclasses.replace(ROWS["bare"], name="added")
        monkeypatch.setitem(ROWS, "added", row)
        monkeypatch.setattr(Row, "load", lambda row: AddedEnvironment)
        assert isinstance(environment_named("added"), AddedEnvironment)


class TestAMetric:
    def test_is_judged_where_its_row_says_so_and_takes_a_budget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = metrics.Metric(
            "added", "added metric", "ms", "lower", "latency_mean_ms", judged=frozenset({"server"}),
            paired=frozenset({"server"}),
        )  # fmt: skip
        monkeypatch.setitem(metrics.METRICS, "added", row)
        assert "added" in metrics.judged_metrics("server")
        assert "added" in metrics.duet_metrics("server")
        assert "added" not in metrics.judged_metrics("offline")
        assert parse_budget("added=3ms")[0] == "added"


class AddedTechnique(CpuShared):
    """A local technique in a file of its own: this one."""

    def prepare(self, parts: int) -> dict[str, Any]:
        return {"added": parts}


def added_offer(node: NodeFacts, wish: Wish) -> Offer:
    return Offer(wish.technique, "added", "example.com/part", wish.parts, Entitlement("a part", 1.0 / wish.parts))


ADDED_ON_NODES = NodeTechnique(lambda seen, node, offer: [f"{len(seen)} tenants seen"], added_offer)


class TestATechnique:
    @pytest.fixture(autouse=True)
    def row(self, monkeypatch: pytest.MonkeyPatch) -> Technique:
        implementations = {"bare": f"{__name__}:AddedTechnique", "k8s": f"{__name__}:ADDED_ON_NODES"}
        row = Technique("added", "Added", implementations, "none", "tenants share by an added technique")
        monkeypatch.setitem(TECHNIQUES, "added", row)
        return row

    def test_is_planned_for_the_places_that_it_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["share", "--tech", "added", "--tenants", "1,2", "--repeats", "1", "--dry-run"]) == 0
        assert "added-t2" in capsys.readouterr().out
        assert share_plan("k8s", techniques=("added",)).techniques == ("added",)

    def test_provides_its_tenants_on_this_machine(self, row: Technique) -> None:
        place = BareShared(allowance=CpuAllowance((0, 1), None, ""))
        assert place.switch(row, 2, lambda text: None).facts["added"] == 2
        tenants = place.tenants(row, 2, 2, Setup("resnet50"))
        assert [tenant.environment.name for tenant in tenants] == ["bare+added"] * 2

    def test_is_offered_and_proven_on_a_node(self) -> None:
        node = NodeFacts("n", {}, {}, {"example.com/part": "3"})
        offer = offer_for(node, Wish("added", 3))
        assert offer.resource == "example.com/part"
        evidence = technique_evidence(offer, node, [Evidence({"active": True})], [Described()])
        assert "1 tenants seen" in evidence.reasons

    @pytest.mark.parametrize("technique", ["cpu-shared", "cpu-quota"])
    def test_no_other_file_asks_for_a_local_technique_by_name(self, technique: str) -> None:
        # The manifests contain an example for each node's installation.
        homes = {"plan/techniques.py", "sharing/local_tenants.py", "sharing/kubernetes/manifests.py"}
        assert files_that_name(technique) <= homes


class TestAWarning:
    def test_has_its_line_and_its_place_on_the_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = Kind("added", "machine", "added warning", "It means something.", "Do something.", "%")
        monkeypatch.setitem(notices.CATALOGUE, "added", row)
        (remark,) = notices.remarks([("here", Notice("added", "text", 4.0))])
        assert remark.title == "Added warning: up to 4 %"
        assert "`added`" in notices.page()


class TestAVerb:
    def test_is_in_the_help_and_runs(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        row = (f"{__name__}:added", "Do the added thing.")
        monkeypatch.setitem(verbs.GROUPED["Maintain"], "added", row)
        monkeypatch.setitem(verbs.VERBS, "added", row)
        assert main(["--help"]) == 0
        assert "Do the added thing." in capsys.readouterr().out
        assert main(["added"]) == 0
        assert capsys.readouterr().out == "done\n"


@cache
def literals(path: Path) -> frozenset[str]:
    """The string constants of a file that are not docstrings."""
    return frozenset(_literals(path))


def _literals(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def files_that_name(word: str) -> set[str]:
    return {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if word in literals(path)}


@pytest.mark.parametrize(
    ("engine", "homes"),
    [
        # onnx and torch are also packages whose versions are kept.
        ("onnx", {"plan/engines.py", "worker/probes/host.py"}),
        ("torch", {"plan/engines.py", "worker/probes/host.py"}),
        ("synthetic", {"plan/engines.py"}),
    ],
)
def test_no_other_file_asks_for_an_engine_by_name(engine: str, homes: set[str]) -> None:
    own = {name for name in files_that_name(engine) if name.startswith("worker/engines/")}
    assert files_that_name(engine) - own - homes <= OTHER_MEANINGS.get(engine, set())


# The same word for something else: the samples of a cell are `synthetic` where no data set was given.
OTHER_MEANINGS: dict[str, set[str]] = {"synthetic": {"worker/preparation.py"}}
