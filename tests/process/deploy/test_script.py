"""The script of a GKE deployment: bash can read it, and the real gcloud knows every command and flag."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gputax.deploy.cost import load_prices
from gputax.deploy.plan import Answer, BenchmarkChoices, Command, Plan, RunCommands
from gputax.deploy.providers.current import CurrentChoices, current_plan
from gputax.deploy.providers.gke import GkeChoices, default_image, gke_plan
from gputax.report.deployments import script_text

FOLDER = Path("results/baseline/deployment")


def gke(spot: bool = False) -> Plan:
    choices = GkeChoices(project="my-project-1", spot=spot)
    benchmark = BenchmarkChoices(image=default_image(choices, "1.2.3"), memory="9Gi")
    return gke_plan(choices, benchmark, "r1", "results/baseline", load_prices(), build=True)


def test_bash_can_read_the_script_of_gke() -> None:
    bash = shutil.which("bash")
    text = script_text(gke(spot=True), FOLDER)
    assert bash is None or subprocess.run([bash, "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize("breaks", ["\n", "\r\n"])
def test_no_name_of_a_plan_becomes_a_command_of_its_own(tmp_path: Path, breaks: str) -> None:
    """A kubeconfig or a state file can have any name in it; bash runs the script with kubectl replaced."""
    evil = f"a{breaks}touch pwned{breaks}#"
    choices = CurrentChoices(context=evil, server=evil)
    benchmark = BenchmarkChoices(suite=evil, workload=evil, image=evil, namespace=evil)
    text = script_text(current_plan(choices, benchmark, "r1", f"results/{evil}"), tmp_path / evil)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nexit 0\n")
    kubectl.chmod(0o755)
    (tmp_path / evil).mkdir()
    run = subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert not (tmp_path / "pwned").exists()


def every_gcloud_command(plan: Plan) -> list[Command]:
    commands = [command for step in plan.steps for command in step.undo]
    commands += [c for step in plan.steps if isinstance(step.action, RunCommands) for c in step.action.commands]
    commands += [step.check.command for step in plan.steps if isinstance(step.check, Answer)]
    commands += [*plan.scale_to_zero, *plan.lost_log]
    return [command for command in commands if command.words[0] == "gcloud"]


def plain(command: Command) -> str:
    """The linter splits at blanks and knows no quotes: the one word with blanks, a log filter, is shortened."""
    return " ".join("FILTER" if " " in word else word for word in command.words)


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="no Google Cloud CLI here to ask")
def test_the_real_gcloud_knows_every_command_and_flag(tmp_path: Path) -> None:
    """Its own linter, offline and without an account; the stand-in's table was recorded with it."""

    def ask(command: Command) -> str:
        asked = subprocess.run(
            ["gcloud", "meta", "lint-gcloud-commands", f"--command-string={plain(command)}"],
            capture_output=True,
            text=True,
            env={**os.environ, "CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"},
        )
        (answer,) = json.loads(asked.stdout)
        return "" if answer["success"] else f"{command.text()}: {answer['error_message']}"

    with ThreadPoolExecutor(4) as pool:
        assert [words for words in pool.map(ask, every_gcloud_command(gke(spot=True))) if words] == []
