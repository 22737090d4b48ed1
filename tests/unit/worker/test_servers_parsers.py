"""What comes from a server is parsed piece by piece, wherever the pieces are cut, and nonsense is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gputax.errors import UsageError
from gputax.worker.servers.event_stream import LONGEST_DETAIL, Accepted, Document, EventStream
from gputax.worker.servers.failures import CUT, EMPTY, GARBAGE, OK, REPORTED, redacted, words_for
from gputax.worker.servers.infer_messages import fields, infer_request, metadata_of, text, varint
from gputax.worker.servers.prompts import drawn_prompts, read_prompts
from gputax.worker.servers.response import NotHttp, Response
from gputax.worker.servers.tensors import TensorSpec, drawn, parse_shapes

EVENTS = (
    b': a comment\n\ndata: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"delta":{"reasoning_content":"b"}}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\ndata: [DONE]\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_stream_is_the_same_wherever_it_is_cut(cut: int, size: int) -> None:
    body = EventStream()
    response = Response(body)
    data = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunked(EVENTS, size)
    for number, at in enumerate(range(0, len(data), cut), 1):
        assert not response.done
        response.feed(data[at : at + cut], number)
    assert response.done
    assert body.finish() == OK
    assert (body.tokens, len(body.times_ns)) == (7, 2)
    assert body.times_ns == sorted(body.times_ns)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        (b"data: {\n\n", GARBAGE),
        (b"data: 5\n\n", GARBAGE),
        (b'data: {"choices": 5}\n\n', GARBAGE),
        (b'data: {"usage": {"completion_tokens": "x"}}\n\n', GARBAGE),
        (b"<html>\n", GARBAGE),
        (b"data: [DONE", GARBAGE),
        (b"data: [DONE]\n\n", EMPTY),
        (b'data: {"choices":[{"text":"a"}]}\n\n', CUT),
        (b'data: {"error":{"message":"no"}}\n\n', REPORTED),
        (b'data: {"error":"no"}\n\n', REPORTED),
    ],
)
def test_every_kind_of_nonsense_has_its_status(events: bytes, status: int) -> None:
    body = EventStream()
    body.begin(200)
    body.feed(events, 1)
    assert body.finish() == status


@pytest.mark.parametrize("reader", [EventStream, Document, Accepted])
@pytest.mark.parametrize("piece", [7, 100_000])
def test_of_a_long_refusal_the_beginning_and_the_end_are_kept(
    reader: type[EventStream | Document | Accepted], piece: int
) -> None:
    body = b"Traceback (most recent call last):" + b" File x, line 1" * 1000 + b" ValueError: unexpected shape"
    taken = reader()
    taken.begin(500)
    for at in range(0, len(body), piece):
        taken.feed(body[at : at + piece], 0)
    assert taken.finish() == 500
    assert taken.detail.startswith("Traceback")
    assert taken.detail.endswith("unexpected shape")
    assert len(taken.detail) < LONGEST_DETAIL + 10


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    body = EventStream()
    response = Response(body)
    response.feed(b"HTTP/1.1 200 OK\r\n\r\n" + EVENTS, 1)
    assert not response.done
    response.end()
    assert response.done
    assert not response.keep
    assert body.finish() == OK


def test_the_end_of_a_connection_does_not_end_a_response_that_is_not_complete() -> None:
    for data in (HEAD + b"5\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", b"HTTP/1.1 200"):
        response = Response(EventStream())
        response.feed(data, 1)
        response.end()
        assert not response.done


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        HEAD + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    ],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(NotHttp):
        Response(EventStream()).feed(data, 1)


def test_status_words_and_redaction() -> None:
    assert words_for(429) == "HTTP 429 Too Many Requests"
    assert words_for(1008) == "gRPC RESOURCE_EXHAUSTED"
    assert words_for(599) == "HTTP 599"
    assert redacted("key sk-abcd is wrong, Bearer sk-other", "sk-abcd") == "key *** is wrong, Bearer ***"


def test_messages_survive_their_own_encoding() -> None:
    tensor = text(1, "x") + text(2, "FP32") + text(3, varint(-1) + varint(224))
    found = metadata_of(text(1, "m") + text(2, "1") + text(3, "p") + text(4, tensor))
    assert found == {
        "name": "m",
        "platform": "p",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 224]}],
    }
    for bad in (b"\xff", b"\x0a\x05ab", b"\x0b"):
        with pytest.raises(ValueError, match="protobuf"):
            list(fields(bad))


def test_inputs_are_drawn_by_type_shape_and_seed() -> None:
    specs = [TensorSpec("x", "FP32", (-1, 3)), TensorSpec("ids", "INT64", (1, -1))]
    first = drawn(specs, parse_shapes("ids:1x5"), 7)
    again = drawn(specs, parse_shapes("ids:1x5"), 7)
    assert [(each.values.shape, each.values.dtype.str) for each in first] == [((1, 3), "<f4"), ((1, 5), "<i8")]
    assert all(np.array_equal(one.values, other.values) for one, other in zip(first, again, strict=True))
    assert len(infer_request("m", first)) > 3 * 4 + 5 * 8
    with pytest.raises(UsageError, match="free axes"):
        drawn(specs, {}, 7)
    with pytest.raises(UsageError, match="type BYTES"):
        drawn([TensorSpec("s", "BYTES", (1,))], {}, 7)
    with pytest.raises(UsageError, match="not a shape"):
        parse_shapes("x=1")


def test_prompts_have_their_length_differ_and_follow_the_seed() -> None:
    prompts = drawn_prompts(50, 128, 7)
    assert {len(prompt.split()) for prompt in prompts} == {128}
    assert len(set(prompts)) == 50
    assert prompts == drawn_prompts(50, 128, 7)
    assert prompts != drawn_prompts(50, 128, 8)


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\nplain two\n\n')
    assert read_prompts(str(path)) == ["one", "plain two"]
    path.write_text('{"text": "one"}\n')
    with pytest.raises(UsageError, match="line 1"):
        read_prompts(str(path))
    path.write_text("\n")
    with pytest.raises(UsageError, match="no prompt"):
        read_prompts(str(path))
