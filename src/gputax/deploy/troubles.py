"""Recognize failures in the output of gcloud, docker and similar programs, and remove secrets from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Secrets that cloud tools could print: Google access tokens, bearer headers, JSON web tokens, passwords.
_SECRETS = re.compile(r"ya29\.[\w.-]+|(?<=Bearer )\S+|eyJ[\w-]+\.[\w-]+\.[\w-]+|(?<=password=)\S+", re.IGNORECASE)
ABSENT = re.compile(r"not.?found|does not exist|\b404\b|no such|could not be found", re.IGNORECASE)


@dataclass(frozen=True)
class Trouble:
    """A pattern in a tool's output, its meaning and the next step; {project}, {zone} and {region} are filled in."""

    pattern: str
    what: str
    next_step: str


TROUBLES: tuple[Trouble, ...] = (
    Trouble(
        r"invalid_grant|reauthentication|gcloud auth login|do not currently have an active account",
        "not logged in to Google Cloud",
        "gcloud auth login",
    ),
    Trouble(
        r"billing.{0,60}(disabled|not enabled|account)|BILLING_DISABLED",
        "the project has no billing account",
        "gcloud billing projects link {project} --billing-account=ACCOUNT",
    ),
    Trouble(
        r"SERVICE_DISABLED|API has not been used|it is disabled",
        "a Google API is not enabled in the project",
        "gcloud services enable container.googleapis.com artifactregistry.googleapis.com --project={project}",
    ),
    Trouble(
        r"quota.{0,80}exceeded|QUOTA_EXCEEDED|insufficient regional quota|GPUS_ALL_REGIONS",
        "the project's quota is too small",
        "gcloud compute regions describe {region} --project={project} --format='table(quotas)'; "
        "request more in the console (IAM, Quotas), or use --spot, which has its own quota",
    ),
    Trouble(
        r"RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|does not have enough resources|out of resources",
        "the zone has no capacity for this machine",
        "use another --zone, or try again later",
    ),
    Trouble(
        r"PERMISSION_DENIED|Permission .{0,80}denied|\b403\b|not have .{0,40}permission|Required .{0,80}permission",
        "the account is missing a permission",
        "gcloud projects get-iam-policy {project}; roles/container.admin, roles/artifactregistry.admin and "
        "roles/serviceusage.serviceUsageAdmin are enough",
    ),
    Trouble(
        r"Cannot connect to the Docker daemon|Is the docker daemon running",
        "the docker daemon is not running",
        "start docker (`sudo systemctl start docker`), or build elsewhere and give --image",
    ),
    Trouble(r"no space left on device", "the disk is full", "df -h; docker system prune"),
    Trouble(
        r"unauthorized|denied: |authentication required",
        "the registry rejected the push",
        "gcloud auth configure-docker {region}-docker.pkg.dev",
    ),
    Trouble(
        r"could not resolve|name resolution|connection (refused|reset|timed out)|network is unreachable|TLS handshake",
        "the network is not reachable",
        "check this machine's internet connection",
    ),
)


def trouble_in(output: str) -> Trouble | None:
    """Return the first known failure in a tool's output."""
    return next((each for each in TROUBLES if re.search(each.pattern, output, re.IGNORECASE | re.DOTALL)), None)


def useful_line(output: str) -> str:
    """Return the most useful line: gcloud's ERROR line, or the last non-empty one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:", "Error"))]
    return (errors or lines or ["no output"])[-1][:300]


def redacted(text: str) -> str:
    """Return the text without anything that looks like a token."""
    return _SECRETS.sub("(removed)", text)
