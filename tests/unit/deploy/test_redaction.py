"""Secrets in the output of programs and in pods' logs: none of them reaches a file."""

from __future__ import annotations

import json
import time

import pytest

from gputax.deploy.tools import redacted
from gputax.measure.run.documents import empty_record
from gputax.plan.cells import Cell, Setup
from gputax.results.importers.pod_log import read_block, result_block

SECRET = "s3cr3tS3cr3tS3cr3t99"
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


@pytest.mark.parametrize(
    "text",
    [
        f"token={SECRET}",
        f"?access_token={SECRET}&x=1",
        f"--token {SECRET}",
        f"--password={SECRET}",
        f"password: {SECRET}",
        f"Password:{SECRET}",
        f"passwd = {SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"client_secret: '{SECRET}'",
        f'{{"api_key": "{SECRET}"}}',
        f"X-Api-Key: {SECRET}",
        f"https://me:{SECRET}@example.org/x.git",
        f"postgres://:{SECRET}@db/x",
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"ya29.{SECRET}",
        f"eyJhbGciOiJI.eyJzdWIi.{SECRET}",
    ],
)
def test_what_follows_the_name_of_a_secret_is_removed(text: str) -> None:
    shown = redacted(text)
    assert SECRET not in shown
    assert "(removed)" in shown


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ",
        "glpat-aBcDeFgHiJkLmNoPqRsT",
        "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "xoxb-123456789012-abcdefghijkl",
    ],
)
def test_a_token_that_shows_what_it_is_needs_no_name(secret: str) -> None:
    assert redacted(f"found {secret}, going on") == "found (removed), going on"


def test_a_private_key_is_removed_whole_and_also_line_by_line() -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", KEY_LINE, KEY_LINE, "-----END RSA PRIVATE KEY-----"]
    assert redacted("\n".join(["before", *lines, "after"])) == "before\n(removed)\nafter"
    # A log gets the output of a program line by line.
    assert all(KEY_LINE not in redacted(line) for line in lines)
    in_json = json.dumps({"private_key": "\n".join(lines), "n": 1})
    assert json.loads(redacted(in_json)) == {"private_key": "(removed)", "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[2/7] resnet50 offline batch 8 (bare)",
        "tokens: 512, tokens_per_s=90.5, max_token_count=8",
        '{"token": 5, "secret": null, "password": true}',
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "see https://example.org:443/x and ssh://me@host",
        "user@host: 3 keys; the secret gputax-pull was not found",
        "",
    ],
)
def test_what_is_not_a_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_the_result_block_of_a_log_can_still_be_read() -> None:
    record = empty_record((Cell(Setup("resnet50"), "offline", 1),), "abc", "2026-01-01T00:00:00+00:00")
    text = f"token={SECRET}\n{result_block(record)}"
    assert read_block(redacted(text), "log")[0] == record


@pytest.mark.parametrize("part", ["eyJ", "-----BEGIN PRIVATE KEY-----\n", "https://", "a", "token", "password=", "A"])
def test_a_hostile_log_takes_no_longer_than_its_length(part: str) -> None:
    text = part * (1_000_000 // len(part))
    begun = time.process_time()
    redacted(text)
    assert time.process_time() - begun < 5.0
