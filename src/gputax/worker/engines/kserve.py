"""The engine `kserve`: inference requests by the Open Inference protocol (v2), over HTTP or gRPC."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from gputax import __version__
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.servers import DEVICE, DEVICE_UNKNOWN, address_of
from gputax.worker.engines.asking import AskingEngine
from gputax.worker.engines.engine import EngineRequest, NoResponse
from gputax.worker.servers import failures
from gputax.worker.servers.asking import fetched, only_answer, refusal
from gputax.worker.servers.event_stream import Accepted
from gputax.worker.servers.exchange import Answer, Exchange
from gputax.worker.servers.http_exchange import HttpExchange, Wire
from gputax.worker.servers.infer_messages import SERVICE, infer_request, metadata_of, metadata_request, server_of
from gputax.worker.servers.tensors import Tensor, drawn, parse_shapes, specs_of

DIFFERENT_REQUESTS = 8


class KserveEngine(AskingEngine):
    """Sends tensors and waits for the answer; the server does all the work."""

    device = DEVICE
    streams = False
    output_tokens = 0

    def __init__(self, request: EngineRequest) -> None:
        options = request.options
        if request.device in ("cuda", "software"):  # the place of tenants that share cores says cpu
            raise UsageError("a server chooses its device itself", next_step=f"drop --device {request.device}")
        self._options = dict(options)
        self._address = address_of(str(options["url"]), "kserve")
        self._secret = os.environ.get(str(options["key_variable"]), "")
        self._timeout_s, self._insecure = float(options["timeout_s"]), bool(options["insecure"])
        self.model = str(options["model"])
        if not self.model:
            raise UsageError(
                "a server of the v2 protocol has no list of models",
                where=self._address.text,
                next_step=f"name one: --engine kserve:{self._address.text},model=NAME",
            )
        self._device_name = DEVICE_UNKNOWN
        self._server = ""
        self.samples = DIFFERENT_REQUESTS
        shapes = parse_shapes(str(options["shape"]))
        metadata = self._metadata()
        specs = specs_of(metadata, f"{self._address.text}/v2/models/{self.model}")
        self._platform = str(metadata.get("platform") or "")
        requests = [drawn(specs, shapes, request.seed + number) for number in range(DIFFERENT_REQUESTS)]
        self._shapes = {each.name: list(each.values.shape) for each in requests[0]}
        self.exchange = self._exchange(requests)
        try:
            answer = only_answer(self.exchange)
            if answer.status:
                raise self._refused(answer)
        except BaseException:
            self.exchange.close()
            raise
        self._response = NoResponse(request.max_batch)
        self.response_address, self.response_bytes = self._response.address, self._response.bytes_per_sample

    def _metadata(self) -> dict[str, Any]:
        if self._address.is_grpc:
            return self._metadata_by_grpc()
        found = self._fetched(f"/v2/models/{self.model}")
        if isinstance(found, Answer):
            raise self._refused(found)
        server = self._fetched("/v2")
        if isinstance(server, dict):
            self._server = f"{server.get('name', '')} {server.get('version', '')}".strip()
        config = self._fetched(f"/v2/models/{self.model}/config")  # Triton's extension
        groups = config.get("instance_group") if isinstance(config, dict) else None
        kinds = {str(each.get("kind", "")) for each in groups or () if isinstance(each, dict)} - {""}
        if kinds:
            self._device_name = f"server, {', '.join(sorted(kinds))} as its configuration says"
        return found if isinstance(found, dict) else {}

    def _metadata_by_grpc(self) -> dict[str, Any]:
        from gputax.worker.servers.grpc_exchange import called, channel_to

        channel = channel_to(self._address)
        try:
            answer = called(
                channel, SERVICE, "ModelMetadata", metadata_request(self.model), timeout_s=self._timeout_s,
                secret=self._secret,
            )  # fmt: skip
            if isinstance(answer, Answer):
                raise self._refused(answer)
            server = called(channel, SERVICE, "ServerMetadata", b"", timeout_s=self._timeout_s, secret=self._secret)
            if isinstance(server, bytes):
                self._server = " ".join(server_of(server)).strip()
            return metadata_of(answer)
        except ValueError as error:
            raise PreflightError(
                "the response is not a message of the v2 protocol", where=self._address.text,
                next_step="is this the gRPC port of a Triton, KServe or OpenVINO server?",
            ) from error  # fmt: skip
        finally:
            channel.close()

    def _fetched(self, path: str) -> Any:
        """Return a JSON document, or the answer that says why there is none."""
        data = self._data(b"", "GET", path)
        answer, document = fetched(self._address, data, timeout_s=self._timeout_s, insecure=self._insecure)
        return answer if answer.status else document.data

    def _exchange(self, requests: Sequence[Sequence[Tensor]]) -> Exchange:
        if self._address.is_grpc:
            from gputax.worker.servers.grpc_exchange import GrpcExchange

            messages = [infer_request(self.model, each) for each in requests]
            return GrpcExchange(self._address, SERVICE, messages, timeout_s=self._timeout_s, secret=self._secret)
        path = f"/v2/models/{self.model}/infer"
        wires = [Wire(self._data(infer_json(each), "POST", path), Accepted) for each in requests]
        return HttpExchange(self._address, wires, timeout_s=self._timeout_s, insecure=self._insecure)

    def _data(self, body: bytes, method: str, path: str) -> bytes:
        lines = [
            f"{method} {self._address.path}{path} HTTP/1.1",
            f"Host: {self._address.target}",
            f"User-Agent: gputax/{__version__}",
        ]
        if self._secret:
            lines.append(f"Authorization: Bearer {self._secret}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _refused(self, answer: Answer) -> GputaxError:
        error = refusal(answer, self._address, "kserve", str(self._options["key_variable"]), self._secret)
        if self._address.is_grpc:
            error.next_step = _grpc_step(answer.status, self._address.target, error.next_step, self.model)
        elif answer.status in (400, 404):
            error.what = f"the server does not know the model {self.model}, or refuses its inputs: {error.what}"
            error.next_step = f"check the name: curl {self._address.text}/v2/models/{self.model}"
        return error

    def facts(self) -> dict[str, Any]:
        """Return what is asked of which server; the key is not among it."""
        return {
            "engine": "kserve",
            "provider": "gRPC" if self._address.is_grpc else "HTTP",
            "device_name": self._device_name,
            "server": self._address.text,
            "server_name": self._server,
            "model": self.model,
            "platform": self._platform,
            "input_shapes": self._shapes,
            "options": {key: value for key, value in self._options.items() if key != "url"},
            "different_requests": self.samples,
            "threads": 1,
            "precision": "none",
        }


def infer_json(tensors: Sequence[Tensor]) -> bytes:
    """Return the body of an inference request over HTTP."""
    inputs = [
        {
            "name": each.name,
            "shape": list(each.values.shape),
            "datatype": each.datatype,
            "data": each.values.ravel().tolist(),
        }
        for each in tensors
    ]
    return json.dumps({"inputs": inputs}, separators=(",", ":")).encode()


def _grpc_step(status: int, target: str, otherwise: str, model: str) -> str:
    match status - failures.GRPC:
        case 5 | 3:
            return f"check the model's name ({model}) and its inputs in the server's own list"
        case 14 | 13 | 2:
            return f"if this is an HTTP port, use --engine kserve:http://{target}; with TLS grpcs://{target}"
        case 12:
            return "this gRPC server does not speak the v2 inference protocol: check the port"
    return otherwise
