"""ONNX Runtime as a decoder: the prompt, then one token after the other with the cache of keys and values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import UsageError
from gputax.plan.language_models import DecoderSize, decoder_size
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.engines.onnx import OnnxModel, resolve_model
from gputax.worker.engines.onnx_runtime import import_onnxruntime
from gputax.worker.engines.onnx_session import active_provider, choose_device, open_session
from gputax.worker.engines.reference import Checked, as_dicts, checked_rows, tf32_of
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.workload import FLOAT_TYPES, StateSpec

PROMPT, TOKEN, LOGITS = "input_ids", "next_token", "logits"


@dataclass(frozen=True)
class _Steps:
    """All that one batch size needs: a binding for the prompt and for each further token, made once."""

    bindings: tuple[Any, ...]
    tokens: npt.NDArray[np.int64]
    """[step, sample]: the token that each step wrote."""
    logits: npt.NDArray[Any]
    """Of the last step."""


class OnnxDecoder:
    """Generates a fixed number of tokens for each sample of a batch, greedily, and says when each was there.

    The sizes of all steps are known before the first, so the inputs and outputs of every step are bound once; a step is
    one call. Keys and values move between two buffers: a step reads one and writes the other, one token longer.
    """

    def __init__(self, request: EngineRequest) -> None:
        if request.weights:
            raise UsageError("a language model has seeded weights only", next_step="drop --weights")
        if request.options["copies"] != "included":
            raise UsageError("copies=excluded does not apply to a language model: each token reaches the host")
        ort = self._ort = import_onnxruntime()
        chosen = choose_device(ort, request)
        self._found, self.device = chosen.found, chosen.kind
        self._request = request
        self._size: DecoderSize = decoder_size(request.workload)
        self._states: tuple[StateSpec, ...] = load_workload(request.workload).states
        self._model: OnnxModel = resolve_model(request)
        self._session = open_session(ort, request, chosen.provider, self._model.path)
        self._active = active_provider(ort, self._session, chosen.provider)
        self._cache = [[self._buffer() for _ in range(2)] for _ in self._states]
        self._steps: dict[int, _Steps] = {}
        self._checked: dict[int, Checked] = {}
        self._prompts: npt.NDArray[np.int64] = np.zeros((0, self._size.prompt), dtype=np.int64)
        self.token_ns = np.zeros(self._size.output, dtype=np.int64)
        self._times = self.token_ns.data
        self.answers = np.zeros((request.max_batch, self._size.output), dtype=np.int64)
        """The tokens of the last run, by sample; what LoadGen gets as responses."""
        self._no_response = NoResponse(request.max_batch)
        has_answers = self._found is None or self._found.has_answers
        self.response_address = int(self.answers.ctypes.data) if has_answers else self._no_response.address
        self.response_bytes = self.answers[0].nbytes if has_answers else self._no_response.bytes_per_sample

    @property
    def tokens(self) -> int:
        """How many tokens each sample gets."""
        return self._size.output

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded."""
        return {
            "engine": "onnx",
            "engine_version": self._ort.__version__,
            "provider": self._active,
            "providers": self._session.get_providers(),
            "threads": self._request.threads,
            "precision": self._model.precision,
            "copies": "none: the inputs lie in host memory" if self.device == "cpu" else "included",
            "spin": bool(self._request.options["spin"]),
            "options": dict(self._request.options),
            "weights": self._model.source,
            "weights_sha256": self._model.sha256,
            "tokens_in": self._size.prompt,
            "tokens_out": self._size.output,
            "notices": [notice.to_dict() for notice in self._model.notices],
            **(self._found.to_dict() if self._found else {}),
            **({"answers": as_dicts(self._checked)} if self._checked else {}),
        }

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the prompts."""
        return self._model.adapt(inputs)

    def load_samples(self, samples: Samples) -> None:
        """Keep the prompts; they are read where they lie."""
        self._prompts = samples[PROMPT]

    def run(self, first: int, count: int) -> None:
        """Generate all tokens of the rows; returns when the last one is there."""
        self.generate(first, count, _nothing)

    def generate(self, first: int, count: int, on_first: Callable[[], None]) -> None:
        """Generate all tokens of the rows; `on_first` is called as soon as their first tokens are there."""
        steps = self._steps.get(count) or self._first_steps(first, count)
        run, clock, times = self._session.run_with_iobinding, time.perf_counter_ns, self._times
        bindings = steps.bindings
        self._bind_prompt(bindings[0], first, count)
        run(bindings[0])
        times[0] = clock()
        on_first()
        for step in range(1, len(bindings)):
            run(bindings[step])
            times[step] = clock()
        self.answers[:count] = steps.tokens.T

    def last_logits(self, count: int) -> npt.NDArray[Any]:
        """Return the logits of the last token of the last run of this batch size."""
        return self._steps[count].logits

    def close(self) -> None:
        """Drop the session and its device memory."""
        self._steps.clear()
        self._cache.clear()
        self._session = None

    @property
    def _float(self) -> Any:
        return np.dtype(FLOAT_TYPES[self._model.precision]).type

    @property
    def _place(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"

    def _buffer(self) -> Any:
        """Allocate one side of the cache of one layer, for the largest batch and the last step."""
        size = self._size
        values = self._request.max_batch * size.kv_heads * (size.prompt + size.output) * size.width
        return self._ort.OrtValue.ortvalue_from_shape_and_type([values], self._float, self._place, 0)

    def _bind_prompt(self, binding: Any, first: int, count: int) -> None:
        rows = self._prompts[first : first + count]
        binding.bind_input(PROMPT, "cpu", 0, np.int64, rows.shape, rows.ctypes.data)

    def _first_steps(self, first: int, count: int) -> _Steps:
        """Bind every step of a batch size; the answers of a device that computes are checked before it is used."""
        size = self._size
        tokens = np.zeros((size.output, count), dtype=np.int64)
        logits = np.zeros((count, size.vocabulary), dtype=self._float)
        bindings = tuple(self._bound(step, count, tokens, logits) for step in range(size.output))
        steps = self._steps[count] = _Steps(bindings, tokens, logits)
        if self._found and self._found.has_answers:
            self._check(steps, first, count)
        return steps

    def _bound(self, step: int, count: int, tokens: npt.NDArray[np.int64], logits: npt.NDArray[Any]) -> Any:
        size, binding = self._size, self._session.io_binding()
        past = size.prompt + step - 1 if step else 0
        total = size.prompt + step
        if step:
            binding.bind_input(PROMPT, "cpu", 0, np.int64, (count, 1), tokens[step - 1].ctypes.data)
        for state, sides in zip(self._states, self._cache, strict=True):
            read, written = sides[step % 2], sides[(step + 1) % 2]
            shape = (count, size.kv_heads, past, size.width)
            after = (count, size.kv_heads, total, size.width)
            binding.bind_input(state.input, self._place, 0, self._float, shape, read.data_ptr())
            binding.bind_output(state.output, self._place, 0, self._float, after, written.data_ptr())
        binding.bind_output(TOKEN, "cpu", 0, np.int64, (count, 1), tokens[step].ctypes.data)
        if step == size.output - 1:  # only these are looked at
            binding.bind_output(LOGITS, "cpu", 0, self._float, logits.shape, logits.ctypes.data)
        return binding

    def _check(self, steps: _Steps, first: int, count: int) -> None:
        """Compare the logits of the last step with those of the whole text at once, on the CPU."""
        self.generate(first, count, _nothing)
        text = np.concatenate([self._prompts[first : first + count], steps.tokens.T[:, :-1]], axis=1)
        size = self._size
        empty = np.zeros((count, size.kv_heads, 0, size.width), dtype=self._float)
        feeds = {PROMPT: text, **{state.input: empty for state in self._states}}
        self._checked[count] = checked_rows(
            "onnx", self._model.path, {LOGITS: steps.logits}, feeds, tf32_of(self._model.precision),
            self._request.threads, outputs=(LOGITS,),
        )  # fmt: skip


def _nothing() -> None:
    """Take no notice of the first token."""
