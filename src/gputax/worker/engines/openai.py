"""The engine `openai`: requests to a server of language models, chat or completions, as a stream of tokens."""

from __future__ import annotations

import json
import os
from typing import Any

from gputax import __version__
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.servers import DEVICE, DEVICE_UNKNOWN, address_of
from gputax.worker.engines.asking import AskingEngine
from gputax.worker.engines.engine import EngineRequest, NoResponse
from gputax.worker.servers.asking import fetched, only_answer, refusal
from gputax.worker.servers.event_stream import Document, EventStream
from gputax.worker.servers.exchange import Answer
from gputax.worker.servers.http_exchange import HttpExchange, Reader, Wire
from gputax.worker.servers.prompts import drawn_prompts, read_prompts

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
DRAWN = 512
"""How many different prompts are drawn; a cache of whole prompts would answer a repeated one."""
MODELS_SHOWN = 5


class OpenAiEngine(AskingEngine):
    """Sends prompts and takes the times of their tokens; the server does all the work."""

    device = DEVICE
    exchange: HttpExchange

    def __init__(self, request: EngineRequest) -> None:
        options = request.options
        if request.device in ("cuda", "software"):  # the place of tenants that share cores says cpu
            raise UsageError("a server chooses its device itself", next_step=f"drop --device {request.device}")
        self._options = dict(options)
        self._address = address_of(str(options["url"]), "openai")
        self._secret = os.environ.get(str(options["key_variable"]), "")
        if "\n" in self._secret or "\r" in self._secret:
            raise PreflightError(
                f"the key in {options['key_variable']} contains a line break", next_step="set it again"
            )
        self._base = self._address.path.removesuffix("/v1")
        self._timeout_s, self._insecure = float(options["timeout_s"]), bool(options["insecure"])
        self.streams = bool(options["stream"])
        self.output_tokens = int(options["output_tokens"])
        if self.output_tokens < 1 or int(options["prompt_tokens"]) < 1:
            raise UsageError("a request needs at least one token in and one out", next_step="e.g. --output-tokens 64")
        self._served: list[str] = []
        self.model = str(options["model"]) or self._only_model()
        prompts = str(options["prompts"])
        self._prompts = (
            read_prompts(prompts) if prompts else drawn_prompts(DRAWN, int(options["prompt_tokens"]), request.seed)
        )
        self.samples = len(self._prompts)
        wires = [Wire(self._data(self._message(prompt)), self._reader) for prompt in self._prompts]
        self.exchange = HttpExchange(self._address, wires, timeout_s=self._timeout_s, insecure=self._insecure)
        try:
            self._counted_by = self._first_answer()
        except BaseException:
            self.exchange.close()
            raise
        self._response = NoResponse(request.max_batch)
        self.response_address, self.response_bytes = self._response.address, self._response.bytes_per_sample

    def _reader(self) -> Reader:
        return EventStream() if self.streams else Document()

    def _only_model(self) -> str:
        """Return the model that the server names; the user must choose where there are several."""
        data = self._data(b"", "GET", "/v1/models")
        answer, document = fetched(self._address, data, timeout_s=self._timeout_s, insecure=self._insecure)
        if answer.status:
            if answer.status in (404, 405, 501):
                raise PreflightError(
                    "the server does not list its models",
                    where=self._address.text,
                    next_step=f"name one: --engine openai:{self._address.text},model=NAME",
                )
            raise self._refused(answer)
        try:
            self._served = [str(each["id"]) for each in document.data["data"]]
        except (KeyError, TypeError) as error:
            raise PreflightError(
                "the list of models is not one of an OpenAI-style server",
                where=f"{self._address.text}/v1/models",
                next_step="check the address, or name a model: ,model=NAME behind it",
            ) from error
        if len(self._served) != 1:
            shown = ", ".join(self._served[:MODELS_SHOWN]) or "none"
            raise UsageError(
                f"the server has {len(self._served)} models: {shown}",
                where=self._address.text,
                next_step=f"name one: --engine openai:{self._address.text},model={(self._served or ['NAME'])[0]}",
            )
        return self._served[0]

    def _message(self, prompt: str) -> bytes:
        what: dict[str, Any] = {"model": self.model, "max_tokens": self.output_tokens, "temperature": 0}
        if self._options["endpoint"] == "chat":
            what["messages"] = [{"role": "user", "content": prompt}]
        else:
            what["prompt"] = prompt
        if self.streams:
            what |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._options["ignore_eos"]:
            what["ignore_eos"] = True
        return json.dumps(what, separators=(",", ":")).encode()

    def _data(self, body: bytes, method: str = "POST", path: str = "") -> bytes:
        path = self._base + (path or PATHS[str(self._options["endpoint"])])
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._address.target}",
            f"User-Agent: gputax/{__version__}",
            "Accept: text/event-stream, application/json",
        ]
        if self._secret:
            lines.append(f"Authorization: Bearer {self._secret}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _first_answer(self) -> str:
        """Ask once: returns who counts the tokens, or raises with what is wrong."""
        if not self.streams:
            answer = only_answer(self.exchange)
            if answer.status:
                raise self._refused(answer)
            return "usage"
        reader = EventStream()
        probe = HttpExchange(
            self._address,
            [Wire(self._data(self._message(self._prompts[0])), lambda: reader)],
            timeout_s=self._timeout_s,
            insecure=self._insecure,
        )
        try:
            answer = only_answer(probe)
        finally:
            probe.close()
        if answer.status:
            raise self._refused(answer)
        return "chunks" if reader.usage is None else "usage"

    def _refused(self, answer: Answer) -> GputaxError:
        error = refusal(answer, self._address, "openai", str(self._options["key_variable"]), self._secret)
        if answer.status in (400, 404) and "model" in answer.detail.lower():
            error.next_step = f"see the models that it has: curl {self._address.text}/v1/models"
        return error

    def facts(self) -> dict[str, Any]:
        """Return what is asked of which server; the key is not among it."""
        return {
            "engine": "openai",
            "provider": f"{self._options['endpoint']}{'' if self.streams else ', not streamed'}",
            "device_name": DEVICE_UNKNOWN,
            "server": self._address.text,
            "model": self.model,
            "options": {key: value for key, value in self._options.items() if key != "url"},
            "tokens_counted": {"unit": "chunk", "by": self._counted_by},
            "different_requests": self.samples,
            "threads": 1,
            "precision": "none",
        }
