"""A server as the command line names it: its address, what it is asked, and how its failures count."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gputax.errors import UsageError
from gputax.plan.engines import ENGINES, Option, parse_engine
from gputax.plan.own_model import content_name

DEVICE = "server"
"""The device of such a number: the server's, whatever that is."""
DEVICE_UNKNOWN = "server, device unknown"
SCENARIOS = ("server", "single-stream", "saturate")
# Failed requests are in no latency. Above this share the others are not the same load any more.
ERROR_BOUND = 0.01
TOO_MANY_FAILED = "too-many-failed"
FAILURE_LOG = "failed_requests.tsv"
"""The failures of a cell by kind: status, number, meaning, what the server said last."""
PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}
FEWEST_REQUESTS, LONGEST_S = 64, 60.0


@dataclass(frozen=True)
class ServerAddress:
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("https", "grpcs")

    @property
    def is_grpc(self) -> bool:
        """Whether it is the address of a gRPC port."""
        return self.scheme.startswith("grpc")

    @property
    def target(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def text(self) -> str:
        """The whole address."""
        return f"{self.scheme}://{self.target}{self.path}"


def address_of(url: str, engine: str) -> ServerAddress:
    """Parse a URL; a secret in it is refused, because commands are written into results."""
    example = f"e.g. --engine {engine}:http://127.0.0.1:8000"
    schemes = tuple(PORTS) if engine == "kserve" else ("http", "https")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the address of engine {engine} is not a URL: {error}", next_step=example) from error
    if not url or parts.scheme not in schemes or not parts.hostname:
        raise UsageError(
            f"the engine {engine} needs the address of a server: {' or '.join(f'{each}://' for each in schemes)}",
            next_step=example,
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            "the address of a server must not carry credentials, a query or a fragment: results would show them",
            next_step=f"set the key in the environment variable {KEY_VARIABLE}, or in another: ,key_variable=NAME",
        )
    return ServerAddress(parts.scheme, parts.hostname, port or PORTS[parts.scheme], parts.path.rstrip("/"))


KEY_VARIABLE = "OPENAI_API_KEY"


def is_server(engine: str) -> bool:
    """Whether the engine asks a server."""
    return bool(engine) and ENGINES[parse_engine(engine).name].asks_server


def with_options(engine: str, given: Mapping[str, Option]) -> str:
    """Return the specification with these options added; an option that it names itself is not replaced."""
    spec = parse_engine(engine)
    named = {pair.partition("=")[0] for pair in engine.split(",")[1:]}
    for key in given:
        if key not in spec.options:
            raise UsageError(
                f"--{key.replace('_', '-')} is for a server of language models", next_step="use --engine openai:URL"
            )
    return ",".join([engine, *(f"{key}={value}" for key, value in given.items() if key not in named)])


def server_label(engine: str) -> str:
    """Return the name of a side whose server is the layer: its host and port."""
    spec = parse_engine(engine)
    return address_of(str(spec.options["url"]), spec.name).target


def server_workload(engine: str, seed: int) -> str:
    """Return the workload's name: what is asked, and a digest of it; the address is not part of it."""
    spec = parse_engine(engine)
    address_of(str(spec.options["url"]), spec.name)
    told = {key: value for key, value in spec.options.items() if key not in NOT_THE_WORKLOAD}
    digest = hashlib.sha256(repr((spec.name, sorted(told.items()), seed)).encode())
    if prompts := str(spec.options.get("prompts", "")):
        digest.update(_content(prompts))
    return content_name(_title(spec.name, spec.options), digest.hexdigest())


NOT_THE_WORKLOAD = ("url", "model", "key_variable", "timeout_s", "insecure", "slo_ttft_ms", "slo_tpot_ms")
"""Options that say where and how a server is asked, and not what: two servers may serve one model by two names."""


def _title(engine: str, options: Mapping[str, Option]) -> str:
    if engine == "kserve":
        return "infer"
    prompt = Path(str(options["prompts"])).name if options["prompts"] else f"{options['prompt_tokens']}"
    return f"{options['endpoint']}-{prompt}-{options['output_tokens']}-tokens"


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the prompts cannot be read: {error.strerror}", where=path) from error


def refuse_server_contradictions(engine: str, environments: Sequence[str], **given: object) -> None:
    """Reject options that say how a model runs: the server decides that."""
    for name, value in given.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} does not apply to a server, which runs the model itself",
                where=f"engine {engine.partition(',')[0]}",
                next_step=f"drop --{name.replace('_', '-')}",
            )
    for name in environments:
        if "+" in name:
            raise UsageError(
                f"a layer of {name} holds a device, and a server has its own",
                next_step="name the two servers: gputax duet bare bare --engine openai:URL_A --engine-b openai:URL_B",
            )
