"""A gRPC server of the Open Inference protocol, with messages by the protobuf library: it checks ours independently."""

from __future__ import annotations

import time
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
MESSAGES: dict[str, list[tuple[str, int, Any, bool, str]]] = {
    "InferInputTensor": [
        ("name", 1, FIELD.TYPE_STRING, False, ""),
        ("datatype", 2, FIELD.TYPE_STRING, False, ""),
        ("shape", 3, FIELD.TYPE_INT64, True, ""),
    ],
    "ModelInferRequest": [
        ("model_name", 1, FIELD.TYPE_STRING, False, ""),
        ("inputs", 5, FIELD.TYPE_MESSAGE, True, "InferInputTensor"),
        ("raw_input_contents", 7, FIELD.TYPE_BYTES, True, ""),
    ],
    "ModelInferResponse": [("model_name", 1, FIELD.TYPE_STRING, False, "")],
    "ModelMetadataRequest": [("name", 1, FIELD.TYPE_STRING, False, "")],
    "TensorMetadata": [
        ("name", 1, FIELD.TYPE_STRING, False, ""),
        ("datatype", 2, FIELD.TYPE_STRING, False, ""),
        ("shape", 3, FIELD.TYPE_INT64, True, ""),
    ],
    "ModelMetadataResponse": [
        ("name", 1, FIELD.TYPE_STRING, False, ""),
        ("versions", 2, FIELD.TYPE_STRING, True, ""),
        ("platform", 3, FIELD.TYPE_STRING, False, ""),
        ("inputs", 4, FIELD.TYPE_MESSAGE, True, "TensorMetadata"),
    ],
    "ServerMetadataResponse": [
        ("name", 1, FIELD.TYPE_STRING, False, ""),
        ("version", 2, FIELD.TYPE_STRING, False, ""),
    ],
}


def message_types() -> dict[str, Any]:
    """Return the classes of the messages, made by the protobuf library from their fields."""
    file = descriptor_pb2.FileDescriptorProto(name="stand_in.proto", package="inference", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated, of in fields:
            label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                added.type_name = f".inference.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in MESSAGES}


TYPES = message_types()


class InferServer:
    """Serves the model `tiny` (x: FP32, -1 x 4) on a port of loopback."""

    def __init__(self, infer_s: float = 0.0, fail_every: int = 0) -> None:
        self._infer_s, self._fail_every = infer_s, fail_every
        self.requests: list[Any] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        methods = {"ModelMetadata": self._metadata, "ServerMetadata": self._about, "ModelInfer": self._infer}
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),)
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def __enter__(self) -> InferServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    def _about(self, request: bytes, context: Any) -> bytes:
        found: bytes = TYPES["ServerMetadataResponse"](name="stand-in", version="1").SerializeToString()
        return found

    def _metadata(self, request: bytes, context: Any) -> bytes:
        asked = TYPES["ModelMetadataRequest"].FromString(request)
        if asked.name != "tiny":
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model {asked.name}")
        answer = TYPES["ModelMetadataResponse"](name="tiny", versions=["1"], platform="stand-in")
        answer.inputs.add(name="x", datatype="FP32", shape=[-1, 4])
        found: bytes = answer.SerializeToString()
        return found

    def _infer(self, request: bytes, context: Any) -> bytes:
        asked = TYPES["ModelInferRequest"].FromString(request)
        self.requests.append(asked)
        if self._fail_every and len(self.requests) % self._fail_every == 0:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "as programmed")
        time.sleep(self._infer_s)
        found: bytes = TYPES["ModelInferResponse"](model_name="tiny").SerializeToString()
        return found
