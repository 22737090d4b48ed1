"""The transformers library's modules of our workloads, built from their configurations with our seeded weights."""

from __future__ import annotations

from typing import Any

from gputax.errors import PreflightError, unknown_name
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.seeded import seeded_state

# Our input names -> the module's keyword arguments.
FORWARD_NAMES: dict[str, dict[str, str]] = {
    "resnet50": {"pixel_values": "pixel_values"},
    "bert-large": {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    },
    "yolos-small": {"pixel_values": "pixel_values"},
}


def empty_module(transformers: Any, workload: str) -> Any:
    """Return the module with the library's own initial weights; no download."""
    match workload:
        case "resnet50":
            return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
        case "bert-large":
            config = transformers.BertConfig(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
            )
            return transformers.BertForQuestionAnswering(config)
        case "yolos-small":
            config = transformers.YolosConfig(
                hidden_size=384,
                num_hidden_layers=12,
                num_attention_heads=6,
                intermediate_size=1536,
                image_size=[512, 864],
                num_detection_tokens=100,
                num_labels=91,
                use_mid_position_embeddings=True,
            )
            return transformers.YolosForObjectDetection(config)
    raise unknown_name("workload", workload, FORWARD_NAMES)


def build_module(transformers: Any, torch: Any, workload: str, seed: int) -> Any:
    """Return the module with the seeded weights that the ONNX graph has too."""
    module = empty_module(transformers, workload)
    state = {name: torch.from_numpy(values) for name, values in seeded_state(load_workload(workload), seed).items()}
    missing, unexpected = module.load_state_dict(state, strict=False)
    # Counters and index buffers carry no weights; anything else would mean that the library renamed a layer.
    lost = [name for name in missing if not name.endswith(("num_batches_tracked", "position_ids", "token_type_ids"))]
    if lost or unexpected:
        raise PreflightError(
            f"this transformers version names its weights differently: {[*lost, *unexpected][:3]}",
            next_step="install the pinned versions: pip install -r requirements/torch.txt",
        )
    return module
