"""Every command in the README and the docs is run as it stands; loads that take longer are planned, not applied."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MAKEFILE = (REPOSITORY / "Makefile").read_text()


def documented(prefix: str) -> list[str]:
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = "\n".join(re.findall(r"^```(?:bash)?\n(.*?)^```", text, flags=re.M | re.S))
        inline = re.findall(r"`([^`\n]+)`", text)
        for line in [*blocks.splitlines(), *inline]:
            command = line.split("  #")[0].strip().removeprefix(".venv/bin/")
            if command.startswith(prefix + " "):
                found.append(command)
    return sorted(set(found))


def test_there_are_commands_to_check() -> None:
    assert len(documented("gputax")) >= 12
    assert {"make run", "make test", "make bench"} <= set(documented("make"))


@pytest.mark.parametrize("command", documented("make"))
def test_make_targets_exist(command: str) -> None:
    for target in shlex.split(command)[1:]:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.M), f"the Makefile has no {target}"


@pytest.mark.parametrize("command", documented("gputax"))
def test_gputax_commands_are_understood(command: str, gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    words = ["bare" if word in ("A", "B") else word for word in shlex.split(command)[1:]]
    if len(words) == 1 and words[0] in ("duet", "compare", "report"):
        assert gputax(*words, "--help").returncode == 0
        return
    if words[0] == "run" and "--dry-run" not in words:
        words.append("--dry-run")
    if words[:2] == ["models", "fetch"]:
        done = gputax(*words, GPUTAX_MODELS=str(tmp_path), https_proxy="http://127.0.0.1:9")
        assert done.returncode == 3, "no network in tests: it must say which file to put where"
        assert "put it at" in done.stderr
        return
    if words[0] == "duet" or "--resolution" in words:
        if "--engine" not in words:
            words += ["--engine", "synthetic:latency_us=500"]
        done = gputax(*words, "--max-time", "5")
        assert done.returncode in (0, 6, 7), done.stderr
        return
    if words[0] in ("compare", "report"):
        made = gputax(
            "run", "--engine", "synthetic", "--suite", tiny_suite, "--scenario", "saturate", "--out", "results/baseline"
        )
        assert made.returncode == 0, made.stderr
        shutil.copytree(tmp_path / "results/baseline", tmp_path / "results/candidate")
        done = gputax(*words)
        assert done.returncode in (0, 6, 7), done.stderr
        return
    done = gputax(*words, GPUTAX_MODELS=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_the_sample_reader_in_the_formats_page_works(gputax: Gputax, tiny_suite: str, tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/formats.md").read_text()
    (command,) = re.findall(r"^\.venv/bin/python -c (\".*\") results/NAME/samples/CELL.parquet$", text, flags=re.M)
    gputax("run", "--engine", "synthetic", "--suite", tiny_suite, "--scenario", "saturate", "--out", "o")
    (samples,) = (tmp_path / "o/samples").iterdir()
    code = shlex.split(command)[0]
    done = subprocess.run([sys.executable, "-c", code, str(samples)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["start_ns:", "int64", "end_ns:", "int64", "samples:", "int64"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_no_page_has_a_blank_to_fill() -> None:
    for page in PAGES:
        assert not re.search(r"^(TABLE|BENCHTABLE)$", page.read_text(), flags=re.M), page.name
