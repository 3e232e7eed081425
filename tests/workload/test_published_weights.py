from types import SimpleNamespace
from typing import Any

import pytest

from advisor.workload.sources.published_weights import published_weights, quantization_of


def compressed(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (None, "auto"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "awq", "w_bit": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, None),
        (compressed(type="float", num_bits=8), "fp8"),
        (compressed(type="int", num_bits=8), "int8"),
        (compressed(type="int", num_bits=4, group_size=128), "int4"),
        (compressed(type="float", num_bits=4, group_size=16), "nvfp4"),
        (compressed(type="float", num_bits=4, group_size=32), None),  # not of experts alone
        ({**compressed(type="int", num_bits=4), "ignore": ["lm_head"]}, "int4"),
        ({**compressed(type="int", num_bits=4), "ignore": ["lm_head", "re:.*self_attn.*"]}, None),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "mxfp4"),
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "of next year"}, None),
    ],
)
def test_a_config_says_how_its_weights_are_published(described: Any, expected: str | None) -> None:
    config = SimpleNamespace(quantization_config=described)
    assert published_weights(quantization_of(config)) == expected


def test_transformers_own_record_is_read_too() -> None:
    transformers = pytest.importorskip("transformers")
    config = SimpleNamespace(quantization_config=transformers.AwqConfig(bits=4))
    assert published_weights(quantization_of(config)) == "int4"
    assert published_weights(quantization_of(SimpleNamespace())) == "auto"
