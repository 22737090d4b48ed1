"""Wrong command lines: exit code 2, what is wrong, and the way out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Gputax = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "complaint", "hint"),
    [
        (["rnu"], "unknown command 'rnu'", "did you mean 'run'?"),
        (["run", "--bach", "1"], "No such option", "Did you mean '--batch'?"),
        (["run", "--workload", "resnet5"], "unknown workload 'resnet5'", "did you mean 'resnet50'?"),
        (["run", "--workload", ","], "--workload is empty", "known: resnet50"),
        (["run", "--workload", "resnet50,resnet50"], "each may be given once", ""),
        (["run", "--scenario", "ofline"], "unknown scenario 'ofline'", "did you mean 'offline'?"),
        (["run", "--env", "bear"], "unknown environment 'bear'", "did you mean 'bare'?"),
        (["run", "--device", "gpu"], "unknown device 'gpu'", "known: auto, cpu, cuda"),
        (["run", "--precision", "fp8"], "unknown precision 'fp8'", "known: fp32, fp16"),
        (["run", "--suite", "quik"], "unknown suite 'quik'", "did you mean 'quick'?"),
        (["run", "--engine", "onxx"], "unknown engine 'onxx'", "did you mean 'onnx'?"),
        (["run", "--batch", "1,x"], "not a list of whole numbers", "--batch 1,8,32"),
        (["run", "--batch", "0"], "contains a number below 1", ""),
        (["run", "--threads", "-1"], "Invalid value for '--threads'", ""),
        (["run", "--qps", "5", "--find-peak"], "--qps sets the rate and --find-peak searches for it", "use one"),
        (["run", "--scenario", "offline", "--qps", "5"], "--qps is for the server scenario", "--scenario server"),
        (["run", "--scenario", "single-stream", "--batch", "8"], "--batch does not apply to", "drop it"),
        (["run", "--weights", "a.onnx", "--workload", "resnet50,bert-large"], "several workloads", ""),
        (["run", "--weights", "a.onnx", "--engine", "torch"], "only --engine onnx", ""),
        (["run", "--shape", "x=1x3"], "--shape is for a model of yours", "add --model"),
        (["duet", "bare", "bare", "--input", "x=0..1"], "--input is for a model of yours", "add --model"),
        (["client", "--inputs", "a.npz"], "--inputs is for a model of yours", "add --model"),
        (["run", "--model", "a.onnx", "--workload", "resnet50"], "both say what to run", "use one"),
        (["run", "--scenario", "server", "--qps", "nan"], "nan is not a finite number", ""),
        (["duet", "bare", "bare", "--max-time", "inf"], "inf is not a finite number", ""),
        (["duet", "bare", "bare", "--max-time", "1"], "not in the range", ""),
        (["duet", "bare", "bare", "--weights", "a.onnx", "--engine", "torch"], "only --engine onnx", ""),
        (["duet", "bare", "bare+proxy", "--weights", "a.onnx", "--workload", "micro"], "only --engine onnx", ""),
        (["share", "--weights", "a.onnx", "--engine", "torch"], "only --engine onnx", ""),
        (["duet", "bare", "bare", "--width", "nan"], "not a percentage above zero", "--width 1%"),
        (["duet", "bare", "bare", "--width", "0%"], "not a percentage above zero", "--width 1%"),
        (["deploy", "--context", "a\ntouch pwned", "--dry-run"], "Invalid value for '--context'", "control character"),
        (["deploy", "--namespace", "a\rb", "--dry-run"], "Invalid value for '--namespace'", "control character"),
        (["deploy", "--image", "a\x1b[2Jb", "--dry-run"], "Invalid value for '--image'", "control character"),
        (["run", "--env", "k8s", "--context", "a\x85b"], "Invalid value for '--context'", "control character"),
    ],
)
def test_mistakes(gputax: Gputax, words: list[str], complaint: str, hint: str) -> None:
    done = gputax(*words)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(gputax: Gputax) -> None:
    done = gputax("--debug", "run", "--suite", "quik")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_help_of_every_verb(gputax: Gputax) -> None:
    listing = gputax("--help")
    assert listing.returncode == 0
    for verb in ("run", "duet", "models", "doctor"):
        assert verb in listing.stdout
        done = gputax(verb, "--help")
        assert done.returncode == 0, done.stderr
        assert "Usage:" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint", "hint"),
    [
        (["run", "benchmark"], "unexpected argument 'benchmark'", "behind --"),
        (["run", "a", "--", "b"], "unexpected argument 'a'", "behind --"),
        (["duet", "bare", "bare", "benchmark"], "unexpected argument 'benchmark'", "behind --"),
        (["run", "--"], "-- is not followed by a command", "gputax run -- "),
        (["run", "--unit", "ms"], "--unit is for a program of yours", "add -- COMMAND"),
        (["run", "--repeat-by-process"], "--repeat-by-process is for a program of yours", "add -- COMMAND"),
        (["run", "--unit", "ms", "--repeat-by-process", "--", "a"], "--unit is for printed latencies", "use one"),
        (["run", "--workload", "resnet50", "--", "a"], "--workload does not apply to a program", "drop it"),
        (["duet", "bare", "bare", "--engine", "onnx", "--", "a"], "--engine does not apply to a program", "drop it"),
        (["run", "--scenario", "server", "--", "a"], "--scenario does not apply to a program", "drop it"),
        (["run", "--device", "cpu", "--", "a"], "chooses its device itself", "drop --device cpu"),
        (["run", "--unit", "minutes", "--", "a"], "Invalid value for '--unit'", ""),
    ],
)
def test_mistakes_with_a_program(gputax: Gputax, words: list[str], complaint: str, hint: str) -> None:
    done = gputax(*words)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert hint in done.stderr
