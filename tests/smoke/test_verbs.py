"""Every verb once as a real process: the only processes that `make test` starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gputax.cli.verbs import VERBS
from tests.standins.command import run_gputax

SUITE = """
scenarios = ["offline", "single-stream"]
sample_count = 16
[offline]
pilot_s = 0.2
batch = [1]
duration_s = 0.3
[single-stream]
pilot_s = 0.2
min_samples = 100
"""
ENGINE = ("--engine", "synthetic:latency_us=2000")
SHARE = ("--tech", "cpu-shared", "--tenants", "1,2", "--repeats", "1", "--window", "0.3s", "--warmup", "0.1s")
CLIENT = ("--address", "127.0.0.1", "--port", "0", "--duration", "0.3", "--warmup", "0")
NO_DEPLOYMENT = "no deployment under results/"

# By verb: its words, the exit codes that are right, and a part of what it says. `out` is a finished run.
SMOKE: dict[str, tuple[tuple[str, ...], set[int], str]] = {
    # All of it takes minutes: tests/process/test_demo_command.py.
    "demo": (("--out", "out"), {2}, "this directory holds results already"),
    "run": (("--suite", "suite.toml", *ENGINE, "--out", "run"), {0}, "Saved: run"),
    # An A/A duet of a few seconds on a busy machine may stay inconclusive (7) or exceed its budget (6).
    "duet": (("bare", "bare", *ENGINE, "--max-time", "5", "--out", "duet"), {0, 6, 7}, "Saved: duet"),
    "accuracy": (("--workload", "resnet50"), {2}, "accuracy needs a dataset"),
    "compare": (("out", "copy"), {0, 6, 7}, "offline"),
    "share": ((*SHARE, *ENGINE, "--out", "share"), {0}, "cpu-shared"),
    "advise": (("published:a100-nos", "--slo", "mean=200ms"), {0}, "MPS with 3 tenants"),
    "client": ((*CLIENT, *ENGINE, "--json"), {0}, "inferences"),
    "report": (("out", "--format", "table"), {0}, "single-stream"),
    "exec": (("--env", "bare", "--device", "software", "--", "sh", "-c", "echo here"), {0}, "here"),
    "proxy": (("status", "--socket", "nowhere"), {3}, "no GPU proxy answers"),
    "deploy": (("gke", "--project", "my-project-1", "--dry-run"), {0}, "gcloud"),
    "status": ((), {2}, NO_DEPLOYMENT),
    "collect": ((), {2}, NO_DEPLOYMENT),
    "cost": ((), {2}, NO_DEPLOYMENT),
    "destroy": (("--yes",), {2}, NO_DEPLOYMENT),
    "selftest": (
        ("--device", "software", "--quick", "--only", "kernels", "--out", "selftest"),
        {0},
        "answer like the driver",
    ),
    "models": (("list",), {0}, "resnet50"),
    "doctor": (("--json",), {0, 3}, '"findings"'),
    "verify": (("--device", "software", "--expect", "software"), {0}, "a CPU, not a GPU"),
}


def say(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_gputax(*words, cwd=place, NO_COLOR="1", GPUTAX_MODELS=str(place / "models"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished run, and another one to compare it with."""
    place = tmp_path_factory.mktemp("smoke")
    (place / "suite.toml").write_text(SUITE)
    for name in ("out", "copy"):
        done = say(place, "run", "--suite", "suite.toml", *ENGINE, "--out", name)
        assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_works_as_a_process(place: Path, verb: str) -> None:
    words, codes, said = SMOKE[verb]
    done = say(place, verb, *words)
    assert done.returncode in codes, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
