"""Reads from a Hugging Face config in which storage format the weights of the model are published."""

from collections.abc import Mapping
from typing import Any, Literal

from advisor.records.generation import WeightFormat

_NAMED: Mapping[str, WeightFormat] = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
"""Methods of `quantization_config`, and algorithms of ModelOpt, that are one format."""
_COMPRESSED: Mapping[tuple[str, int], WeightFormat] = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "int4"}
"""Kind and bits of the weights, as compressed-tensors names them."""
_FP4_GROUPS: Mapping[int, WeightFormat] = {16: "nvfp4", 32: "mxfp4"}
"""Weights with one scale -> the format with 4-bit floats."""


def published_weights(config: Any) -> WeightFormat | Literal["unknown"]:
    """Return the format that `quantization_config` describes; "auto" without one, "unknown" if none is like it.

    `config` is a transformers config. The keys are those of its `QuantizationConfigMixin`s, of compressed-tensors and
    of NVIDIA ModelOpt.
    """
    described = getattr(config, "quantization_config", None)
    if not described:
        return "auto"
    if not isinstance(described, Mapping):
        described = described.to_dict()
    method = described.get("quant_method", "")
    method = str(getattr(method, "value", method)).lower()  # transformers' own records have an enum
    if method in ("awq", "gptq"):
        return "int4" if described.get("bits", described.get("w_bit")) == 4 else "unknown"
    if method == "bitsandbytes":
        return "nf4" if described.get("load_in_4bit") else "unknown"
    if method == "compressed-tensors":
        return _compressed(described)
    if method == "modelopt":
        method = str(described.get("quant_algo", "")).lower()
    return _NAMED.get(method, "unknown")


def _compressed(described: Mapping[str, Any]) -> WeightFormat | Literal["unknown"]:
    """Return the format of the first group of layers."""
    groups = [one.get("weights") or {} for one in (described.get("config_groups") or {}).values()]
    weights = groups[0] if groups else {}
    kind, bits = str(weights.get("type")), int(weights.get("num_bits") or 0)
    if (kind, bits) == ("float", 4):
        return _FP4_GROUPS.get(int(weights.get("group_size") or 0), "unknown")
    return _COMPRESSED.get((kind, bits), "unknown")
