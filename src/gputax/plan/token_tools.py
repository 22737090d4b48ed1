"""What each load generator means by TTFT, TPOT and ITL: one name stands for several times, so no name is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gputax.plan.tokens import ITL, LATENCY, TPOT, TTFT


@dataclass(frozen=True)
class Definition:
    """One way to count a time; two values are compared only if their keys are equal."""

    key: str
    text: str


STARTED = Definition("started", "from the start of the request in the client, connecting included")
SENT = Definition("sent", "from the sending of the request, connecting excluded")
UNCLEAR = Definition("unclear", "from the start or the sending of the request: the file does not name the version")
SCHEDULED = Definition("scheduled", "from the request's scheduled arrival")
FIRST_EXCLUDED = Definition("first-excluded", "(last - first token) / (tokens - 1) of each request")
FIRST_EXCLUDED_PER_TOKEN = Definition(
    "first-excluded-per-token", "(last - first token) / (tokens - 1), each request counted once per token"
)
FIRST_INCLUDED = Definition("first-included", "(end - start) / tokens of each request, the first token included")
EACH_CHUNK_GAP = Definition("chunk-gap", "each gap between two chunks of a response")
EACH_TOKEN_GAP = Definition("token-gap", "each gap between two tokens of a response")


@dataclass(frozen=True)
class Meant:
    """What one result means by a series of times."""

    definition: Definition
    tool: str = "gputax"
    called: str = ""
    """The name that the tool gives to it."""

    @property
    def text(self) -> str:
        """The definition, with whose it is."""
        called = f"{self.called} of {self.tool}" if self.called else self.tool
        return f"{called} counts {self.definition.text}"


@dataclass(frozen=True)
class Name:
    """One name in a tool's files."""

    called: str
    sounds_like: str
    """The series of ours that its name suggests; empty if it suggests none."""
    definition: Definition
    is_series: str = ""
    """The series of ours that it is by its definition; empty if it is none."""


@dataclass(frozen=True)
class Tool:
    """A load generator whose files are read."""

    title: str
    read_in: str
    """The version whose source the definitions were read in."""
    clock: Definition
    """What its TTFT and its request latency count from."""
    names: tuple[Name, ...]
    """Beside TTFT, which is called so by all."""

    def meant(self) -> dict[str, Meant]:
        """Return, by series, what the tool's files contain for it, or what its name for it means instead."""
        by_name = {each.sounds_like: self._meant(each) for each in self.names if each.sounds_like}
        by_definition = {each.is_series: self._meant(each) for each in self.names if each.is_series}
        return {
            LATENCY: Meant(self.clock, self.title, "request latency"),
            TTFT: Meant(self.clock, self.title, "TTFT"),
            **by_name,
            **by_definition,
        }

    def _meant(self, name: Name) -> Meant:
        return Meant(name.definition, self.title, name.called)

    @property
    def translations(self) -> tuple[str, ...]:
        """Where the tool's name and ours differ, as sentences."""
        taken = [
            f"its {each.called} is compared as {each.is_series} ({each.definition.text})"
            for each in self.names
            if each.is_series and each.is_series != each.sounds_like
        ]
        left = [
            f"its {each.called} is not {each.sounds_like} here ({each.definition.text})"
            for each in self.names
            if each.sounds_like and not each.is_series
        ]
        return (*taken, *left)


_TPOT = Name("TPOT", TPOT, FIRST_EXCLUDED, TPOT)
_ITL = Name("ITL", ITL, EACH_CHUNK_GAP, ITL)
_ITL_PER_REQUEST = Name("ITL", ITL, FIRST_EXCLUDED, TPOT)
AIPERF = Tool(
    "aiperf", "0.13.0", STARTED, (_ITL_PER_REQUEST, Name("inter chunk latency", "", EACH_CHUNK_GAP, ITL))
)  # fmt: skip
INFERENCE_PERF = Tool(
    "inference-perf", "0.7.0", STARTED, (_TPOT, _ITL, Name("normalized TPOT", "", FIRST_INCLUDED))
)  # fmt: skip
GUIDELLM = Tool("guidellm", "0.8.1", SENT, (Name("TPOT", TPOT, FIRST_INCLUDED), _ITL_PER_REQUEST))
GUIDELLM_SUMMARY = Tool(
    "guidellm", "0.8.1", SENT,
    (Name("TPOT", TPOT, FIRST_INCLUDED), Name("ITL", ITL, FIRST_EXCLUDED_PER_TOKEN)),
)  # fmt: skip
"""Its own percentiles, without the requests."""
# Since then (0.8.0 was read too) its clock starts when the request is written to the open connection.
GUIDELLM_SENT_SINCE = (0, 8, 1)
VLLM_BENCH = Tool("vLLM bench serve", "0.33.0", STARTED, (_TPOT, _ITL))
MLPERF_ENDPOINTS = Tool("mlcommons/endpoints", "0.5", STARTED, (_TPOT,))
TOOLS: tuple[Tool, ...] = (AIPERF, INFERENCE_PERF, GUIDELLM, VLLM_BENCH, MLPERF_ENDPOINTS)


def guidellm_of(version: str, *, requests: bool) -> Tool:
    """Return guidellm as of a version: its clock changed, and its percentiles are not those of its requests."""
    tool = GUIDELLM if requests else GUIDELLM_SUMMARY
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if len(parts) < 2:
        return replace(tool, clock=UNCLEAR)
    return tool if parts >= GUIDELLM_SENT_SINCE else replace(tool, clock=STARTED)


def meant_by_gputax(scenario: str, definitions: Mapping[str, str]) -> dict[str, Meant]:
    """Return what a record of ours means: a server's requests have a schedule, all others start when they are sent."""
    found = {LATENCY: Meant(SCHEDULED if scenario == "server" else SENT, called="latency")}
    if definitions:
        clock = {"scheduled": SCHEDULED, "sent": SENT}.get(definitions.get("clock_start", ""), UNCLEAR)
        gap = {"token": EACH_TOKEN_GAP, "chunk": EACH_CHUNK_GAP}.get(definitions.get("counted", ""), EACH_TOKEN_GAP)
        found |= {
            TTFT: Meant(clock, called=TTFT),
            TPOT: Meant(FIRST_EXCLUDED, called=TPOT),
            ITL: Meant(gap, called=ITL),
        }
    return found
