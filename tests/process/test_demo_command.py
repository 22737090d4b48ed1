"""`gputax demo` from its first look at the machine to its report, with delays in place of a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gputax.cli.demo import Sizes, Tour, exit_code, run_demo
from gputax.cli.main import main
from gputax.environments.driver import missing_parts
from gputax.errors import PreflightError
from gputax.report.demo import DemoResults
from tests.builders.documents import benchmark, record
from tests.builders.small_models import small_store
from tests.standins.command import TINY_SUITE

PARTS = ("run/benchmark_results.json", "resolution.json", "share/sharing.json", "report.html")
PROXY_PARTS = ("model/comparison.json", "proxy/comparison.json", "tenants/sharing.json")


@pytest.fixture
def sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sizes:
    """Seconds in place of minutes; the model behind the proxy is a small one, all others are delays."""
    monkeypatch.setenv("GPUTAX_MODELS", str(small_store(tmp_path / "models")))
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    # What is measured must not depend on whether gVisor happens to be here.
    monkeypatch.setattr("gputax.environments.container.ready_runtime", lambda name, image: False)
    return Sizes(
        suite=str(tmp_path / "tiny.toml"),
        engine="synthetic:latency_us=500",
        resolution_s=3.0,
        model_s=6.0,
        duet_s=6.0,
        tenants=(1, 2),
        repeats=2,
        window_s=0.3,
        warmup_s=0.1,
        proxy_window_s=0.3,
        proxy_warmup_s=0.1,
    )


@pytest.mark.skipif(bool(missing_parts()), reason="native parts are not built")
def test_one_directory_one_screen_one_page(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_demo("demo", False, sizes) in (0, 5)
    for part in (*PARTS, *PROXY_PARTS):
        assert (tmp_path / "demo" / part).is_file(), part
    out, err = capsys.readouterr()
    assert len(out.splitlines()) <= 31, f"28, and labels of disturbed rows:\n{out}"
    assert max(map(len, out.splitlines())) <= 80
    assert "Report: demo/report.html" in out
    assert "Noise floor of this machine: ±" in (tmp_path / "demo" / "report.html").read_text()
    assert "Next: gputax " in out
    assert len(err.splitlines()) == 8, "one line for each step"
    first = next(line for line in out.splitlines() if " ms" in line or " µs" in line)
    assert first.startswith("ResNet-50"), "the first number is a model's behind the proxy"
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "bare+proxy against bare on software device (gputax software device), not a GPU" in page


def test_without_native_parts_the_proxy_is_skipped_with_a_warning(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path / "nothing"))
    assert run_demo(str(tmp_path / "demo"), True, sizes) in (0, 5)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["proxy"] is None
    assert "tenants" not in document
    assert document["run"]["complete"]
    assert "warning: skipped the GPU proxy" in err
    for part in PARTS:
        assert (tmp_path / "demo" / part).is_file(), part


def without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputax.environments.driver.C_COMPILERS", ("no-such-compiler",))


def too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputax.cli.demo.seconds_of_an_inference", lambda workload, view: 16.2)


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (without_a_compiler, "resnet50 skipped: without a C compiler the software device is too slow."),
        (too_slow, "resnet50 skipped: 16 s an inference on the software device here."),
    ],
)
def test_where_the_model_would_take_too_long_one_line_says_so(
    tmp_path: Path,
    sizes: Sizes,
    monkeypatch: pytest.MonkeyPatch,
    machine: Callable[[pytest.MonkeyPatch], None],
    why: str,
) -> None:
    machine(monkeypatch)
    assert Tour(tmp_path / "demo", sizes)._model() == (None, why)
    assert not (tmp_path / "demo" / "model").exists()


def test_where_gvisor_is_the_report_has_it_too(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(Tour, "_duet", lambda tour, *words: asked.append(words))
    Tour(tmp_path / "demo", sizes)._runtime()
    (words,) = asked
    assert words == ("runtime", ("resnet50",), 20.0, ("container", "container:runsc", "cpu"), {})


def test_a_sandbox_that_does_not_work_ends_no_tour(
    tmp_path: Path, sizes: Sizes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise PreflightError("podman cannot start the container")

    monkeypatch.setattr(Tour, "_duet", broken)
    assert Tour(tmp_path / "demo", sizes)._runtime() is None
    assert "warning: skipped gVisor: podman cannot start the container" in capsys.readouterr().err


def test_a_directory_with_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").write_text("")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "this directory holds results already" in capsys.readouterr().err


def test_invalid_results_are_told_by_the_exit_code() -> None:
    def found(valid: bool) -> DemoResults:
        return DemoResults(2, (), record(benchmark(valid=valid)), None, None, ())

    assert exit_code(found(valid=True)) == 0
    assert exit_code(found(valid=False)) == 5
