"""Shell completion as the shells ask for it, and the plugin of kubectl."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ver", {"verify"}),
        ("verify --exp", {"--expect"}),
        ("verify --env bare", {"bare", "bare+proxy"}),
        ("duet bare k8s+m", {"k8s+mps", "k8s+mig"}),
        ("compare a b --format ju", {"junit"}),
    ],
)
def test_words_are_completed(gputax: Gputax, words: str, expected: set[str]) -> None:
    count = len(words.split())
    done = gputax(_GPUTAX_COMPLETE="bash_complete", COMP_WORDS=f"gputax {words}", COMP_CWORD=str(count))
    assert {line.partition(",")[2] for line in done.stdout.split()} == expected, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_of_the_page_gives_the_shell_its_script(gputax: Gputax, shell: str) -> None:
    page = (REPOSITORY / "docs/coming-from.md").read_text()
    (variable,) = re.findall(rf"_GPUTAX_COMPLETE=({shell}_source) gputax", page)
    done = gputax(_GPUTAX_COMPLETE=variable)
    assert done.returncode == 0, done.stderr
    assert "_gputax_completion" in done.stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_finds_the_plugin(tmp_path: Path) -> None:
    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl-gputax"].partition(":")
    # As pip writes it; the environment of the tests may have been installed before there was one.
    plugin = tmp_path / "kubectl-gputax"
    plugin.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    plugin.chmod(0o755)
    done = subprocess.run(
        ["kubectl", "gputax", "advise", "published:a100-nos", "--slo", "mean=200ms"],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "MPS with 3 tenants" in done.stdout
