"""Every command in the README and the docs is run as it stands; loads that take longer are planned, not applied."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from bench.soak import parse as parse_soak
from gputax.api import duet_request, own_model
from gputax.cli.duet import duet
from gputax.cli.share import share, share_plan
from gputax.plan.engines import parse_engine
from gputax.plan.own_model import is_factory
from gputax.results.importers.pod_log import result_block
from tests.builders.documents import record
from tests.builders.shared_documents import gpu_record
from tests.builders.small_models import small_text_model
from tests.standins.cloud import Cloud
from tests.standins.command import TINY_SUITE, run_gputax
from tests.standins.infer_grpc import InferServer
from tests.standins.model_server import ModelServer

Gputax = Callable[..., subprocess.CompletedProcess[str]]
REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MAKEFILE = (REPOSITORY / "Makefile").read_text()


def for_a_cluster(page: Path) -> list[str]:
    """Return the lines of the blocks that are marked `bash cluster`, in order: make e2e runs them as they stand."""
    blocks = re.findall(r"^```bash cluster\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line]


def for_a_container_engine(page: Path) -> list[str]:
    """Return the lines of the blocks that are marked `bash container`: tests/e2e measures with a real podman."""
    blocks = re.findall(r"^```bash container\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line]


def documented(prefix: str) -> list[str]:
    found = []
    for page in PAGES:
        text = page.read_text()
        fenced = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.M | re.S)
        blocks = "\n".join(block for language, block in fenced if language in ("", "bash")).replace("\\\n", " ")
        inline = re.findall(r"`([^`\n]+)`", text)
        for line in [*blocks.splitlines(), *inline]:
            command = line.split("  #")[0].strip().removeprefix(".venv/bin/")
            command = re.sub(r"^([A-Z_]+=\S+ )+(?=gputax )", "", command)
            if command.startswith(prefix + " "):
                found.append(command)
    return sorted(set(found))


def test_there_are_commands_to_check() -> None:
    assert len(documented("gputax")) >= 12
    assert {"make run", "make test", "make bench"} <= set(documented("make"))


@pytest.mark.parametrize("command", documented("make"))
def test_make_targets_exist(command: str) -> None:
    for target in (word for word in shlex.split(command)[1:] if "=" not in word):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.M), f"the Makefile has no {target}"


@pytest.mark.parametrize("command", documented("python -m bench.soak"))
def test_soaks_are_understood(command: str) -> None:
    """tests/process/bench runs a short one."""
    assert parse_soak(shlex.split(command)[3:]).tenants > 0


@pytest.mark.parametrize("command", [line for page in PAGES for line in for_a_cluster(page)])
def test_commands_for_a_cluster_are_understood_and_say_that_there_is_none(
    command: str, gputax: Gputax, tmp_path: Path
) -> None:
    words = shlex.split(command.split("  #")[0])
    if words[0] == "kubectl" and "-k" in words:
        assert (REPOSITORY / words[words.index("-k") + 1] / "kustomization.yaml").is_file()
    elif words[0] == "make":
        test_make_targets_exist(command)
    elif words[0] == "gputax" and words[1] in ("run", "duet", "doctor", "share", "verify"):
        fast = ["--no-control"] if words[1] == "duet" else []
        fast += ["--engine", "synthetic"] if fast and "--workload" not in words else []
        done = gputax(*words[1:], *fast, KUBECONFIG=str(tmp_path / "none"))
        assert done.returncode == 3, done.stderr
        assert "no kubeconfig found" in done.stdout + done.stderr


@pytest.mark.parametrize("command", [line for page in PAGES for line in for_a_container_engine(page)])
def test_commands_for_a_container_engine_are_understood_and_say_that_there_is_none(
    command: str, gputax: Gputax, tmp_path: Path
) -> None:
    words = shlex.split(command.split("  #")[0])
    done = gputax(*words[1:], *(["--no-control"] if words[1] == "duet" else []), PATH=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert "neither docker nor podman is installed" in done.stderr


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that commands compare and report."""
    place = tmp_path_factory.mktemp("baseline")
    (place / "tiny.toml").write_text(TINY_SUITE)
    words = ("--engine", "synthetic", "--suite", "tiny.toml", "--scenario", "saturate", "--out", "results")
    made = run_gputax("run", *words, cwd=place)
    assert made.returncode == 0, made.stderr
    return place / "results"


@pytest.mark.parametrize("command", sorted({re.sub(r"\b[AB]\b", "bare", each) for each in documented("gputax")}))
def test_gputax_commands_are_understood(command: str, gputax: Gputax, baseline: Path, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    if len(words) == 1 and words[0] in ("demo", "duet", "accuracy", "compare", "report", "exec", "proxy"):
        assert gputax(*words, "--help").returncode == 0
        return
    if any("://127.0.0.1" in word for word in words) and words[0] in ("run", "duet", "share"):
        _check_server_command(words, gputax, tmp_path)
        return
    if "--" in words and words[0] in ("run", "duet"):
        _check_program_command(words, gputax, tmp_path)
        return
    if "--model" in words:
        _write_model_of(words, tmp_path)
    if words[0] == "run" and "--dry-run" not in words:
        words.append("--dry-run")
    if "--like" in words:
        shutil.copytree(baseline, tmp_path / words[words.index("--like") + 1])
    if words[:2] == ["models", "fetch"]:
        done = gputax(*words, GPUTAX_MODELS=str(tmp_path), https_proxy="http://127.0.0.1:9")
        assert done.returncode == 3, "no network in tests: it must say which file to put where"
        assert "put it at" in done.stderr
        return
    if words[0] == "duet" and "bare+proxy" in words and not any(word.startswith("micro") for word in words):
        # A model on the software device takes minutes: tests/process runs a small one.
        chosen = duet.make_context("duet", words[1:]).params
        own = own_model(tmp_path / chosen["model"], shapes=chosen["shapes"]) if chosen["model"] else None
        given = {name: chosen[name] for name in ("workload", "device", "engine")}
        request = duet_request(chosen["a"], chosen["b"], **given, own=own)
        engines = {parse_engine(side.setup.engine).name for side in (request.a, request.b)}
        assert engines == {chosen["engine"] or "tinygrad"}
        return
    if words[0] == "duet" or "--resolution" in words:
        if words[0] == "duet":
            words.append("--no-control")
        if "--engine" not in words and not any(word.startswith("micro") for word in words):
            words += ["--engine", "synthetic:latency_us=500"]
        done = gputax(*words, "--max-time", "5")
        # 3: a runner that is too noisy for the page's gate says so.
        assert done.returncode in ((0, 3, 6, 7) if "--gate" in words else (0, 6, 7)), done.stderr
        return
    if words[0] == "accuracy":
        # The datasets of the page are not here: tests/process/test_accuracy.py runs small ones.
        done = gputax(*words)
        assert done.returncode == 3, done.stderr
        assert "does not exist" in done.stderr or "a dataset for bert-large is" in done.stderr
        return
    if words[0] in ("share", "client", "advise"):
        _check_sharing_command(words, gputax, tmp_path)
        return
    if words[0] in ("compare", "report"):
        write_sharing(tmp_path / "results/share")
        shutil.copytree(REPOSITORY / "docs/example", tmp_path / "docs/example")
        for name in ("baseline", "candidate"):
            shutil.copytree(baseline, tmp_path / "results" / name)
        done = gputax(*words)
        assert done.returncode in (0, 6, 7), done.stderr
        return
    if words[0] == "proxy":
        _check_proxy_command(words, gputax, tmp_path)
        return
    if words[0] == "selftest":
        # All groups take a minute: tests/process runs them. A machine of the tests has no GPU.
        few = [] if "--only" in words else ["--only", "fills"]
        done = gputax(*words, *few)
        assert done.returncode == (0 if "software" in words else 3), done.stdout + done.stderr
        return
    if words[0] in ("deploy", "status", "collect", "cost", "destroy"):
        _check_deployment_command(words, tmp_path)
        return
    if words[0] == "verify" and "software" not in words:
        # What it answers depends on the machine; that it answers does not.
        done = gputax(*words)
        assert done.returncode in (0, 3), done.stderr
        assert '"mode"' in done.stdout or "around it:" in done.stdout
        return
    done = gputax(*words, GPUTAX_MODELS=str(tmp_path))
    assert done.returncode == 0, done.stderr


# Prints latencies in every way that the page shows, and ends; the one for CUDA calls the driver first.
PROGRAM = """#!/bin/sh
case $0 in *cuda*) exec {python} -c '
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert not cuda.cuInit(0)
device, context = ctypes.c_int(), ctypes.c_void_p()
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
import time
while True: time.sleep(0.002); print("2 ms")
';; esac
for step in 1 2 3 4 5 6 7 8; do sleep 0.002; echo 2; done
"""


def _check_program_command(words: list[str], gputax: Gputax, tmp_path: Path) -> None:
    """Run it with a program of the test's own in the place of the user's, for a moment."""
    at = words.index("--")
    program = tmp_path / words[at + 1]
    program.write_text(PROGRAM.replace("{python}", sys.executable))
    program.chmod(0o755)
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    fast = ["--no-control", "--max-time", "5"] if words[0] == "duet" else ["--suite", "tiny.toml"]
    done = gputax(*words[:at], *fast, "--out", "o", *words[at:])
    assert done.returncode in (0, 6, 7), done.stderr


def _check_server_command(words: list[str], gputax: Gputax, tmp_path: Path) -> None:
    """Run it against servers of the test's own in the place of the user's, for a moment."""
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one two three"}\n')
    with ModelServer() as one, ModelServer() as other, InferServer() as grpc_server:
        places = {"http://127.0.0.1:8000": one.url, "http://127.0.0.1:8001": other.url}
        places |= {"grpc://127.0.0.1:9000": grpc_server.url}
        for place, url in places.items():
            words = [word.replace(place, url) for word in words]
        fast = {
            "run": ["--suite", "tiny.toml", "--accept-disturbed"],
            "duet": ["--no-control", "--max-time", "5"],
            "share": ["--tenants", "1", "--repeats", "1", "--window", "1s", "--warmup", "0s", "--accept-disturbed"],
        }
        given = [word for word in words if word not in ("--tenants", "1,4")]
        done = gputax(*given, *fast[words[0]], "--out", "o")
        assert done.returncode in (0, 6, 7), done.stdout + done.stderr


def _write_model_of(words: list[str], folder: Path) -> None:
    """Write the files that a page takes for the user's own: a network of 30,522 token ids, and samples for it.

    Of a torch module nothing runs here: make test-torch runs one.
    """
    model = words[words.index("--model") + 1]
    if is_factory(model):
        source = folder / f"{model.partition(':')[0].replace('.', '/')}.py"
        source.parent.mkdir(exist_ok=True)
        source.write_text("def make(): ...\n")
    else:
        small_text_model(folder / model, rows=30522)
    if "--inputs" in words:
        np.savez(folder / words[words.index("--inputs") + 1], ids=np.zeros((3, 384), dtype=np.int64))


def _check_sharing_command(words: list[str], gputax: Gputax, tmp_path: Path) -> None:
    """Plan an experiment, run a tenant for a moment, or ask for advice on results that are made up."""
    if len(words) == 1:
        assert gputax(*words, "--help").returncode == 0
    elif words[0] == "share":
        chosen = share.make_context("share", words[1:]).params
        if chosen["model"]:
            chosen["own"] = own_model(tmp_path / chosen["model"], shapes=chosen["shapes"])
        assert share_plan(chosen["place"], chosen).cells()
    elif words[0] == "client":
        engine = [] if "software" in words else ["--engine", "synthetic:latency_us=500"]
        done = gputax(*words, *engine, "--warmup", "0", "--duration", "1s", "--port", "0")
        assert done.returncode == 0, done.stderr
    else:
        write_sharing(tmp_path / "results/share", tokens="ttft" in " ".join(words))
        done = gputax(*words)
        assert done.returncode in (0, 6, 7), done.stderr


def write_sharing(directory: Path, *, tokens: bool = False) -> None:
    directory.mkdir(parents=True)
    made = gpu_record()
    figures = {"ttft_p90_ms": 90.0, "tpot_p90_ms": 20.0} if tokens else {}
    cells = tuple(cell.model_copy(update={"tokens": figures}) for cell in made.cells)
    (directory / "sharing.json").write_text(made.model_copy(update={"cells": cells}).model_dump_json())


def _check_deployment_command(words: list[str], tmp_path: Path) -> None:
    """Plan a deployment, or look at one that was made in a stand-in cluster."""
    cloud = Cloud(tmp_path / "cloud")
    cloud.api.log = result_block(record())
    kubeconfig = str(cloud.home / "kubeconfig")
    try:
        if words[0] == "deploy":
            done = cloud.gputax(*dict.fromkeys([*words, "--dry-run"]))
            assert cloud.calls() == []
        else:
            assert cloud.gputax("deploy", "--device", "cpu", "--yes", KUBECONFIG=kubeconfig).returncode == 0
            consent = ["--yes"] if words[0] == "destroy" and "--if-idle" not in words else []
            done = cloud.gputax(*words, *consent, KUBECONFIG=kubeconfig)
        assert done.returncode == 0, done.stderr
    finally:
        cloud.close()


def _check_proxy_command(words: list[str], gputax: Gputax, tmp_path: Path) -> None:
    """Run it beside a proxy in a directory of the test's own, which ends with the test."""
    start = words if words[1] == "start" else ["proxy", "start", "--device", "software"]
    started = gputax(*start, XDG_RUNTIME_DIR=str(tmp_path))
    assert started.returncode == 0, started.stderr
    try:
        if words[1] == "status":
            done = gputax(*words, XDG_RUNTIME_DIR=str(tmp_path))
            assert done.returncode == 0, done.stderr
    finally:
        os.kill(int(re.findall(r"kill (\d+)", started.stdout)[0]), signal.SIGTERM)


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


def test_the_init_container_of_the_page_on_verify_works(gputax: Gputax) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", (REPOSITORY / "docs/verify.md").read_text(), flags=re.M | re.S)
    pod = yaml.safe_load(block)
    (first,), (second,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert first["resources"] == second["resources"], "the kubelet hands the same device on only if both ask for it"
    done = gputax(*first["command"][1:])
    assert done.returncode in (0, 3), done.stderr
    assert "around it:" in done.stdout


def test_no_page_has_a_blank_to_fill() -> None:
    for page in PAGES:
        assert not re.search(r"^(TABLE|BENCHTABLE)$", page.read_text(), flags=re.M), page.name
