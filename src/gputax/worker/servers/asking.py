"""One request before anything is measured: what a server cannot do is refused here, with the next command."""

from __future__ import annotations

from gputax.errors import GputaxError, PreflightError
from gputax.plan.servers import ServerAddress
from gputax.worker.servers import failures
from gputax.worker.servers.event_stream import Document
from gputax.worker.servers.exchange import Answer, Exchange
from gputax.worker.servers.http_exchange import NEVER_NS, HttpExchange, Wire

HTTP2 = ("\\x00\\x00", "PRI *", "\\x04\\x00")


def only_answer(exchange: Exchange, index: int = 0) -> Answer:
    """Send one request and wait for its end; the exchange's own time limit ends it."""
    exchange.start(0, index)
    while True:
        for answer in exchange.wait(NEVER_NS):
            return answer


def fetched(address: ServerAddress, data: bytes, *, timeout_s: float, insecure: bool) -> tuple[Answer, Document]:
    """Fetch one JSON document on a connection of its own."""
    document = Document()
    exchange = HttpExchange(address, [Wire(data, lambda: document)], timeout_s=timeout_s, insecure=insecure)
    try:
        return only_answer(exchange), document
    finally:
        exchange.close()


def refusal(answer: Answer, address: ServerAddress, engine: str, key_variable: str, secret: str) -> GputaxError:
    """Return why this server cannot be measured, as the answer to a request shows it."""
    detail = failures.redacted(" ".join(answer.detail.split()), secret)
    said = f": {detail}" if detail else ""
    what, next_step = f"{failures.words_for(answer.status)}{said}", f"curl -v {address.text}"
    host = address.target
    match answer.status:
        case failures.REFUSED:
            what, next_step = (
                f"nothing answers at {host}{said}",
                f"start the server, or check the port: ss -ltn | grep {address.port}",
            )
        case failures.TLS:
            what = f"TLS with {host} failed{said}"
            next_step = (
                "use http:// if the server has no TLS; for a certificate of your own set SSL_CERT_FILE, or add "
                ",insecure=true to the engine"
            )
        case failures.TIMED_OUT:
            what = "the server accepted the request and sent no complete response in time"
            next_step = "give it longer with ,timeout_s=300 behind the address, or look at the server's own log"
        case failures.CUT:
            what = f"the server closed the connection in the middle of the response{said}"
            next_step = f"if this is a gRPC port, use --engine kserve:grpc://{host}; otherwise look at the server's log"
        case failures.GARBAGE if any(each in detail for each in HTTP2):
            what = f"port {address.port} speaks HTTP/2, as a gRPC port does"
            next_step = f"use --engine kserve:grpc://{host}, or the server's HTTP port"
        case failures.GARBAGE:
            what = f"the response is not what the protocol says{said}"
            next_step = f"is this the right server for {engine}? curl -v {address.text}"
        case failures.EMPTY:
            next_step = "the server ended the stream without a token: look at its log"
        case 401 | 403:
            next_step = f"set the key: export {key_variable}=... (or name another variable with ,key_variable=NAME)"
        case 404:
            next_step = (
                f"check path and model: curl {address.text}/v1/models"
                if engine == "openai"
                else (f"check path and model: curl {address.text}/v2")
            )
        case 429:
            next_step = "the server limits its clients: ask slower (--qps), or raise its limit"
    return PreflightError(what, where=address.text, next_step=next_step)
