"""With the same weights, our ONNX graphs and the transformers library's modules give the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.plan.language_models import DecoderSize, decoder_size
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.bert_large import BertSize, bert
from gputax.worker.workloads.onnx_file import write_graph, write_weights
from gputax.worker.workloads.resnet50 import ResNetSize, resnet
from gputax.worker.workloads.workload import Array, Workload, parameter_values, seeded_state
from gputax.worker.workloads.yolos_small import YolosSize, yolos

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch and transformers warn of their own deprecations when imported
    _REASON = "needs torch and transformers: make test-torch"
    torch = pytest.importorskip("torch", reason=_REASON)
    transformers = pytest.importorskip("transformers", reason=_REASON)
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs an ONNX Runtime")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

SEED = 11
# Logits have a spread of 0.5 to 1.2, boxes lie in 0..1. Two float32 implementations of these depths differ by
# 8e-6 at most (measured, BERT-Large); a wrong stride, mask or weight moves the outputs by 1e-2 and more.
TOLERANCE = 1e-4


def _resnet_module(size: ResNetSize) -> Any:
    config = transformers.ResNetConfig(
        embedding_size=size.stem,
        hidden_sizes=list(size.widths),
        depths=list(size.depths),
        num_labels=size.classes,
    )
    return transformers.ResNetForImageClassification(config)


def _bert_module(size: BertSize) -> Any:
    config = transformers.BertConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.intermediate,
        max_position_embeddings=size.positions,
    )
    return transformers.BertForQuestionAnswering(config)


def _yolos_module(size: YolosSize) -> Any:
    config = transformers.YolosConfig(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.intermediate,
        image_size=list(size.image),
        patch_size=size.patch,
        num_detection_tokens=size.detections,
        use_mid_position_embeddings=True,
        num_labels=size.labels,
    )
    return transformers.YolosForObjectDetection(config)


def _run_vision(module: Any, inputs: dict[str, Any]) -> Any:
    return module(pixel_values=inputs["pixel_values"])


def _run_bert(module: Any, inputs: dict[str, Any]) -> Any:
    return module(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["input_mask"],
        token_type_ids=inputs["segment_ids"],
    )


SMALL_RESNET = ResNetSize(depths=(1, 2), widths=(32, 64), stem=16, classes=10, image=64)
SMALL_BERT = BertSize(layers=2, hidden=64, heads=4, intermediate=96, vocabulary=300, positions=40, sequence=24)
SMALL_YOLOS = YolosSize(layers=3, hidden=48, heads=3, intermediate=64, image=(48, 80), patch=16, detections=5, labels=7)

Case = tuple[Workload, Callable[[], Any], Callable[[Any, dict[str, Any]], Any], dict[str, str], int]
_NAMES: dict[str, dict[str, str]] = {
    "resnet": {"logits": "logits"},
    "bert": {"output_start_logits": "start_logits", "output_end_logits": "end_logits"},
    "yolos": {"logits": "logits", "pred_boxes": "pred_boxes"},
}


def _cases() -> dict[str, Case]:
    return {
        "small-resnet": (
            resnet("small-resnet", SMALL_RESNET),
            lambda: _resnet_module(SMALL_RESNET),
            _run_vision,
            _NAMES["resnet"],
            3,
        ),
        "small-bert": (
            bert("small-bert", SMALL_BERT),
            lambda: _bert_module(SMALL_BERT),
            _run_bert,
            _NAMES["bert"],
            3,
        ),
        "small-yolos": (
            yolos("small-yolos", SMALL_YOLOS),
            lambda: _yolos_module(SMALL_YOLOS),
            _run_vision,
            _NAMES["yolos"],
            3,
        ),
        "resnet50": (
            load_workload("resnet50"),
            lambda: _resnet_module(ResNetSize()),
            _run_vision,
            _NAMES["resnet"],
            2,
        ),
        "bert-large": (
            load_workload("bert-large"),
            lambda: _bert_module(BertSize()),
            _run_bert,
            _NAMES["bert"],
            2,
        ),
        "yolos-small": (
            load_workload("yolos-small"),
            lambda: _yolos_module(YolosSize()),
            _run_vision,
            _NAMES["yolos"],
            2,
        ),
    }


def _onnx_outputs(workload: Workload, folder: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    weights = write_weights(
        workload, "fp32", lambda parameter: parameter_values(parameter, SEED), folder / "model.weights"
    )
    write_graph(workload, "fp32", folder / "model.onnx", "model.weights", weights)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in workload.outputs]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("name", list(_cases()))
def test_outputs_and_parameter_counts_equal(name: str, tmp_path: Path) -> None:
    workload, make_module, run, output_names, count = _cases()[name]
    inputs = workload.synthetic_inputs(count, SEED)
    ours = _onnx_outputs(workload, tmp_path, inputs)

    module = make_module().eval()
    assert sum(parameter.numel() for parameter in module.parameters()) == workload.parameter_count
    state = {key: torch.from_numpy(values) for key, values in seeded_state(workload, SEED).items()}
    # strict: a name or a shape that the library does not have, or that we lack, is an error.
    module.load_state_dict(state, strict=True)
    with torch.inference_mode():
        theirs = run(module, {key: torch.from_numpy(values) for key, values in inputs.items()})

    for our_name, their_name in output_names.items():
        expected = getattr(theirs, their_name).numpy()
        assert ours[our_name].shape == expected.shape
        assert expected.std() > 0.02, "outputs this flat would be equal for the wrong reasons"
        difference = float(np.abs(ours[our_name] - expected).max())
        print(f"{name} {our_name}: max abs difference {difference:.2e}, spread {expected.std():.2f}")
        assert difference < TOLERANCE


def _llama_module(size: DecoderSize) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=size.prompt + size.output,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("name", ["llm-tiny", "llm-tiny:layers=2,hidden=96,heads=6,kv_heads=1,prompt=200,output=6"])
def test_a_language_model_equals_the_library_token_by_token(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gputax.plan.engines import parse_engine
    from gputax.worker.engines.engine import EngineRequest
    from gputax.worker.engines.onnx_decoder import OnnxDecoder

    monkeypatch.setenv("GPUTAX_MODELS", str(tmp_path))
    workload, size = load_workload(name), decoder_size(name)
    module = _llama_module(size).eval()
    assert sum(parameter.numel() for parameter in module.parameters()) == workload.parameter_count
    state = {key: torch.from_numpy(values) for key, values in seeded_state(workload, SEED).items()}
    module.load_state_dict(state, strict=True)
    request = EngineRequest(name, parse_engine("onnx").options, "cpu", "fp32", 1, 2, seed=SEED)
    engine = OnnxDecoder(request)
    prompts = workload.synthetic_inputs(2, SEED)
    engine.load_samples(prompts)
    engine.run(0, 2)

    text = torch.from_numpy(np.concatenate([prompts["input_ids"], engine.answers[:2]], axis=1))
    with torch.inference_mode():
        # Every token at once: the logits before each of ours must prefer it.
        theirs = module(input_ids=text[:, :-1]).logits[:, size.prompt - 1 :]
    assert theirs.std() > 0.3
    assert np.array_equal(theirs.argmax(-1).numpy(), engine.answers[:2])
    difference = float(np.abs(engine.last_logits(2) - theirs[:, -1].numpy()).max())
    print(f"{name}: max abs difference {difference:.2e} after {size.output} tokens, spread {theirs.std():.2f}")
    assert difference < TOLERANCE
    engine.close()
