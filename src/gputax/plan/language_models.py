"""Language models as workloads: the name, what each parameter is, and how `llm-tiny:layers=8,hidden=512` is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from gputax.errors import UsageError, unknown_name

LANGUAGE_MODEL = "llm-tiny"
HEAD_WIDTH = 32


@dataclass(frozen=True)
class DecoderSize:
    """The sizes of a decoder and of its requests: every request has the same number of tokens in and out.

    A width that is 0 follows the others: heads of 32, two query heads for each key and value, 2.75 x hidden between.
    """

    layers: int = 4
    hidden: int = 256
    heads: int = 0
    kv_heads: int = 0
    intermediate: int = 0
    vocabulary: int = 4096
    prompt: int = 32
    """Tokens of each request."""
    output: int = 32
    """Tokens of each answer; no token ends it early."""

    def filled(self) -> DecoderSize:
        """Return it with the widths that follow from others; sizes that do not fit each other are an error."""
        heads = self.heads or max(1, self.hidden // HEAD_WIDTH)
        kv_heads = self.kv_heads or max(1, heads // 2)
        filled = dataclasses.replace(
            self, heads=heads, kv_heads=kv_heads, intermediate=self.intermediate or max(1, 11 * self.hidden // 4)
        )
        if self.hidden % heads or filled.width % 2:
            raise UsageError(
                f"hidden={self.hidden} cannot be split into {heads} heads of an even width",
                next_step="e.g. hidden=256,heads=8",
            )
        if heads % kv_heads:
            raise UsageError(
                f"{heads} heads cannot share {kv_heads} keys and values evenly", next_step="e.g. kv_heads=1"
            )
        return filled

    @property
    def width(self) -> int:
        """The width of one head."""
        return self.hidden // self.heads

    @property
    def gflop(self) -> float:
        """The work of one request: two operations for each weight of the layers and token, and the output's."""
        filled = self.filled()
        attention = filled.hidden * filled.width * (2 * filled.heads + 2 * filled.kv_heads)
        weights = self.layers * (attention + 3 * filled.hidden * filled.intermediate)
        tokens = self.prompt + self.output - 1
        return 2e-9 * (weights * tokens + filled.hidden * self.vocabulary * self.output)


def is_language_model(workload: str) -> bool:
    """Whether the name is that of a language model, with parameters or without."""
    return workload.partition(":")[0] == LANGUAGE_MODEL


def decoder_size(workload: str) -> DecoderSize:
    """Read `llm-tiny` or `llm-tiny:layers=8,hidden=512`; a bad parameter is a usage error."""
    given: dict[str, int] = {}
    known = [field.name for field in dataclasses.fields(DecoderSize)]
    for pair in filter(None, workload.partition(":")[2].split(",")):
        key, _, value = pair.partition("=")
        if key not in known:
            raise unknown_name(f"parameter of {LANGUAGE_MODEL}", key, known)
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(
                f"{LANGUAGE_MODEL}: {pair!r} is not a whole number above zero",
                next_step=f"e.g. {LANGUAGE_MODEL}:{key}={getattr(DecoderSize().filled(), key)}",
            )
        given[key] = int(value)
    return DecoderSize(**given).filled()


def language_model_name(workload: str) -> str:
    """Return the one name of this size: parameters in order, without those that have their usual value."""
    size = decoder_size(workload)
    usual = {field.name: field.default for field in dataclasses.fields(DecoderSize)}
    kept = {name: getattr(size, name) for name, value in usual.items() if getattr(size, name) != value}
    for name in ("heads", "kv_heads", "intermediate"):
        if dataclasses.replace(size, **{name: 0}).filled() == size:
            kept.pop(name, None)
    words = ",".join(f"{name}={value}" for name, value in kept.items())
    return f"{LANGUAGE_MODEL}:{words}" if words else LANGUAGE_MODEL


def with_parameters(parts: Sequence[str]) -> tuple[str, ...]:
    """Join what a comma list cut: `llm-tiny:layers=8` and `hidden=512` are one name."""
    joined: list[str] = []
    for part in parts:
        if joined and is_language_model(joined[-1]) and ":" in joined[-1] and "=" in part and ":" not in part:
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return tuple(joined)
