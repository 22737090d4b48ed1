"""A server on the command line: its address, what it is asked, and what does not apply to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputax.api import duet_request, share_plan
from gputax.errors import UsageError
from gputax.plan.claims import claim, device_label
from gputax.plan.engines import parse_engine
from gputax.plan.servers import address_of, server_workload, with_options
from gputax.plan.suites import load_plan

A, B = "openai:http://127.0.0.1:8000", "openai:http://127.0.0.1:8001"


def test_the_address_comes_first_and_options_follow() -> None:
    spec = parse_engine("openai:https://host:8443/base,model=org/name:tag,output_tokens=7")
    assert (spec.options["url"], spec.options["model"], spec.options["output_tokens"]) == (
        "https://host:8443/base",
        "org/name:tag",
        7,
    )


@pytest.mark.parametrize("text", ["openai", "openai:", "openai:model=x", "kserve:localhost"])
def test_an_engine_without_an_address_says_how_to_give_one(text: str) -> None:
    with pytest.raises(UsageError, match="needs the address of a server"):
        parse_engine(text)


def test_addresses() -> None:
    assert address_of("http://h", "openai").target == "h:80"
    assert address_of("grpc://h", "kserve").target == "h:8001"
    assert address_of("http://[::1]:80/x/", "openai").text == "http://[::1]:80/x"
    for url in ("ftp://h", "grpc://h", "http://", "http://h:x"):
        with pytest.raises(UsageError):
            address_of(url, "openai")
    with pytest.raises(UsageError, match="credentials"):
        address_of("http://h/?key=1", "openai")


def test_the_workload_is_what_is_asked_and_not_who(tmp_path: Path) -> None:
    assert server_workload(A, 7) == server_workload(B, 7) == server_workload(f"{B},model=other", 7)
    assert server_workload(A, 7).startswith("chat-128-64-tokens@")
    assert server_workload(A, 7) != server_workload(A, 8)
    assert server_workload(A, 7) != server_workload(f"{A},output_tokens=9", 7)
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\n")
    first = server_workload(f"{A},prompts={prompts}", 7)
    prompts.write_text("two\n")
    assert server_workload(f"{A},prompts={prompts}", 7) != first


def test_options_of_the_command_line_join_the_engine_and_its_own_win() -> None:
    assert with_options(A, {"output_tokens": 5}) == f"{A},output_tokens=5"
    assert parse_engine(with_options(f"{A},output_tokens=9", {"output_tokens": 5})).options["output_tokens"] == 9
    with pytest.raises(UsageError, match="--output-tokens is for a server of language models"):
        with_options("onnx", {"output_tokens": 5})


def test_cells_of_a_server() -> None:
    cells = load_plan(engine=A, scenarios=("server", "saturate"), batches=(1, 8), qps=20.0)
    assert [(cell.scenario, cell.batch_size) for cell in cells] == [("server", 1), ("saturate", 1), ("saturate", 8)]
    assert cells[0].load.qps == 20.0
    assert cells[1].load.qps == 0.0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"scenarios": ("offline",)}, "no scenario offline"),
        ({"weights": "x.onnx"}, "--weights does not apply to a server"),
        ({"threads": 2}, "--threads does not apply"),
        ({"precision": "fp16"}, "--precision does not apply"),
        ({"device": "cuda"}, "chooses its device itself"),
        ({"batches": (4,)}, "requests in flight"),
        ({"scenarios": ("saturate",), "qps": 5.0}, "--qps is for the server scenario"),
        ({"environment": "bare+proxy"}, "a server has its own"),
    ],
)
def test_what_the_server_decides_is_refused(given: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        load_plan(engine=A, **given)  # type: ignore[arg-type]


def test_two_servers_are_two_sides_named_by_their_addresses() -> None:
    request = duet_request("bare", "bare", engine=A, engine_b=B, scenario="server")
    assert (request.a.label, request.b.label) == ("127.0.0.1:8000", "127.0.0.1:8001")
    assert request.a.setup.workload == request.b.setup.workload
    assert request.injected


def test_servers_that_are_asked_different_things_are_not_a_pair() -> None:
    with pytest.raises(UsageError, match="different things"):
        duet_request("bare", "bare", engine=A, engine_b=f"{B},output_tokens=9")
    with pytest.raises(UsageError, match="a server is compared with a server"):
        duet_request("bare", "bare", engine="onnx", engine_b=B)


def test_tenants_may_ask_one_server() -> None:
    plan = share_plan(engine=A, tenants=(1, 2))
    assert plan.setup.workload == server_workload(A, 7)


def test_the_device_is_what_the_server_says_or_unknown() -> None:
    assert device_label("server", "server, device unknown") == "server, device unknown"
    said = claim("server", "openai", "server", "none", official=False, is_mlperf_model=False)
    assert "without LoadGen" in said
    assert "GPU" not in said
