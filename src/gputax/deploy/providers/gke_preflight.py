"""Checks before a `gke` deployment: programs, login, project and quota."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from gputax.deploy.access import Tools
from gputax.deploy.plan import Command
from gputax.deploy.prices import Prices
from gputax.deploy.processes import require_program
from gputax.deploy.providers.gke import GkeChoices
from gputax.deploy.troubles import useful_line
from gputax.errors import PreflightError, UsageError

_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


def check_names(choices: GkeChoices) -> None:
    """Reject invalid names before a command is built from them."""
    if not _PROJECT.fullmatch(choices.project) and choices.project != GkeChoices.project:
        raise UsageError(f"{choices.project!r} is not a project id", next_step="gcloud projects list")
    for option, name in (("--cluster", choices.cluster), ("--repository", choices.repository)):
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{option} {name!r}: use lowercase letters, digits and dashes, at most 40, starting with a letter"
            )


def find_project(given: str, environ: Mapping[str, str], tools: Tools | None) -> str:
    """Return the project: as given, from the environment, or from gcloud's configuration; there is no default."""
    named = given or environ.get("CLOUDSDK_CORE_PROJECT", "") or environ.get("GOOGLE_CLOUD_PROJECT", "")
    if named or tools is None:
        return named
    require_program("gcloud")
    found = tools.ask(Command(("gcloud", "config", "get-value", "project")))
    if found.exit_code != 0 or not found.output or found.output == "(unset)":
        raise PreflightError(
            "no Google Cloud project is set",
            where="gcloud config",
            next_step="gputax deploy gke --project PROJECT_ID, or gcloud config set project PROJECT_ID",
        )
    return found.output.split()[-1]


def check_account(choices: GkeChoices, tools: Tools) -> None:
    """Raise if there is no login or the project cannot be used."""
    require_program("gcloud")
    account = tools.ask(Command(("gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)")))
    if account.exit_code != 0 or not account.output:
        raise PreflightError("not logged in to Google Cloud", where="gcloud auth list", next_step="gcloud auth login")
    project = tools.ask(Command(("gcloud", "projects", "describe", choices.project, "--format=value(lifecycleState)")))
    if project.exit_code != 0 or project.output != "ACTIVE":
        raise PreflightError(
            f"the project {choices.project} cannot be used: {useful_line(project.output)}",
            where="gcloud projects describe",
            next_step="list your projects with gcloud projects list, and select one with --project",
        )


def check_programs(choices: GkeChoices, build: bool, source: Path) -> None:
    """Raise if programs or files of later steps are missing."""
    require_program("gke-gcloud-auth-plugin")
    if build:
        require_program(choices.builder)
        if not (source / "docker/Dockerfile").is_file():
            raise PreflightError(
                "docker/Dockerfile, from which the image is built, is not here",
                where=str(source.resolve()),
                next_step="run it in a clone of gputax, or use an existing image with --image REFERENCE",
            )


def check_quota(choices: GkeChoices, prices: Prices, tools: Tools) -> None:
    """Raise if the region's GPU quota is exhausted; skipped if the quota cannot be read."""
    words = ("compute", "regions", "describe", choices.region, "--format=json(quotas)", f"--project={choices.project}")
    found = tools.ask(Command(("gcloud", *words)))
    if found.exit_code != 0:
        return
    metric = ("PREEMPTIBLE_" if choices.spot else "") + prices.accelerators[choices.accelerator].quota
    try:
        quotas = {each["metric"]: each["limit"] - each["usage"] for each in json.loads(found.output)["quotas"]}
    except (ValueError, KeyError, TypeError):
        return
    free = quotas.get(metric)
    if free is not None and free < choices.accelerator_count:
        other = "use --spot, which has its own quota, " if not choices.spot else ""
        raise PreflightError(
            f"the quota {metric} of {choices.region} has {free:g} left, but {choices.accelerator_count} is needed",
            where=f"project {choices.project}",
            next_step=f"{other}use another --zone, or request more: console.cloud.google.com/iam-admin/quotas",
        )
