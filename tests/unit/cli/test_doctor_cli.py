"""`gputax doctor` as people and scripts see it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gputax.cli import doctor as module
from gputax.cli.doctor import doctor, write_findings
from gputax.doctor.machine import Finding
from gputax.errors import UsageError

FINDINGS = [
    Finding("ok", "Python 3.12.4", "glibc 2.36"),
    Finding("ok", "Quiet"),
    Finding("warn", "CPU quota of 0.5 CPUs", "8 CPUs visible", "It throttles.", "docker update --cpus 8 CONTAINER"),
    Finding("fail", "ONNX Runtime cannot use the GPU", "", "Only the CPU.", "pip install 'gputax[cuda]'"),
]
GOLDEN = """\
gputax doctor: bare
✓ Python 3.12.4 (glibc 2.36)
✓ Quiet
! CPU quota of 0.5 CPUs (8 CPUs visible)
    why: It throttles.
    fix: docker update --cpus 8 CONTAINER
✗ ONNX Runtime cannot use the GPU
    why: Only the CPU.
    fix: pip install 'gputax[cuda]'
2 ok, 1 warning, 1 failure"""


def run(monkeypatch: pytest.MonkeyPatch, findings: list[Finding], *arguments: str) -> Result:
    monkeypatch.setattr(module, "gather_facts", lambda environment, *_: {"host": {"python": environment}})
    monkeypatch.setattr(module, "diagnose", lambda facts, disk: findings)
    return CliRunner().invoke(doctor, arguments)


def test_the_findings_are_printed_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, FINDINGS)
    assert result.stdout == GOLDEN + "\n"
    assert result.exit_code == 3


def test_a_long_finding_continues_beside_its_mark() -> None:
    stream = io.StringIO()
    write_findings(
        [Finding("warn", "Other processes use 199 % of a core", "python (pid 795) 44 %")], "bare", stream, 50
    )
    assert stream.getvalue().splitlines()[1:3] == ["! Other processes use 199 % of a core (python", "  (pid 795) 44 %)"]


def test_warnings_alone_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, FINDINGS[:3]).exit_code == 0


def test_json_has_findings_and_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, FINDINGS, "--json")
    document = json.loads(result.stdout)
    assert document["environment"] == "bare"
    assert document["facts"] == {"host": {"python": "bare"}}
    assert document["findings"][2] == {
        "status": "warn",
        "title": "CPU quota of 0.5 CPUs",
        "detail": "8 CPUs visible",
        "why": "It throttles.",
        "fix_command": "docker update --cpus 8 CONTAINER",
    }
    assert result.exit_code == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colour_is_for_terminals_whose_user_did_not_say_no(no_colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    write_findings(FINDINGS, "bare", stream, 80)
    assert ("\x1b[31m" in stream.getvalue()) is not bool(no_colour)


def test_marks_fit_the_encoding_of_the_stream() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write_findings(FINDINGS, "bare", stream, 80)
    stream.flush()
    assert raw.getvalue().decode("ascii").splitlines()[1] == "+ Python 3.12.4 (glibc 2.36)"


def test_an_unknown_environment_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown environment 'bear'") as caught:
        module.gather_facts("bear")
    assert "did you mean 'bare'?" in caught.value.next_step


def test_the_disk_is_looked_at_where_models_and_results_will_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTAX_MODELS", "/big/models")
    seen: list[Any] = []
    monkeypatch.setattr(module, "inspect_disk", lambda models, results: seen.extend([str(models), str(results)]))
    run(monkeypatch, [], "--out", "results/x")
    assert seen == ["/big/models", "results/x"]
