"""Reads from a Hugging Face config in which storage format the weights of the model are published."""

from collections.abc import Mapping
from typing import Any

from advisor.records.generation import WeightFormat

_NAMED: Mapping[str, WeightFormat] = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
"""Methods of `quantization_config`, and algorithms of ModelOpt, that are one format."""
_COMPRESSED: Mapping[tuple[str, int], WeightFormat] = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "int4"}
"""Kind and bits of the weights, as compressed-tensors names them."""
_NVFP4_GROUP = 16
"""Weights with one scale in nvfp4."""
_LEFT_OUT = ("ignore", "modules_to_not_convert", "exclude_modules")
"""The keys that list modules in 16 bits."""


def quantization_of(config: Any) -> Mapping[str, Any]:
    """Return the `quantization_config` of a transformers config; empty without one."""
    described = getattr(config, "quantization_config", None) or {}
    found: Mapping[str, Any] = described if isinstance(described, Mapping) else described.to_dict()
    return found


def published_weights(described: Mapping[str, Any]) -> WeightFormat | None:
    """Return the format that a `quantization_config` describes, "auto" if it is empty; None if none is like it.

    The keys are those of transformers' `QuantizationConfigMixin`s, of compressed-tensors and of NVIDIA ModelOpt. Only
    gpt-oss' mxfp4 leaves attention in 16 bits here, so that other models that do are not known.
    """
    if not described:
        return "auto"
    method = method_of(described)
    found = _format_of(method, described)
    left_out = [str(name) for key in _LEFT_OUT for name in described.get(key) or ()]
    return None if found != "mxfp4" and any("attn" in name for name in left_out) else found


def method_of(described: Mapping[str, Any]) -> str:
    """Return the name of the method, in lower case."""
    method = described.get("quant_method", "")
    name = str(getattr(method, "value", method)).lower()  # transformers' own records have an enum
    return str(described.get("quant_algo", "")).lower() if name == "modelopt" else name


def _format_of(method: str, described: Mapping[str, Any]) -> WeightFormat | None:
    if method in ("awq", "gptq"):
        return "int4" if described.get("bits", described.get("w_bit")) == 4 else None
    if method == "bitsandbytes":
        return "nf4" if described.get("load_in_4bit") else None
    if method == "compressed-tensors":
        groups = [one.get("weights") or {} for one in (described.get("config_groups") or {}).values()]
        weights = groups[0] if groups else {}
        kind, bits = str(weights.get("type")), int(weights.get("num_bits") or 0)
        is_nvfp4 = (kind, bits, weights.get("group_size")) == ("float", 4, _NVFP4_GROUP)
        return "nvfp4" if is_nvfp4 else _COMPRESSED.get((kind, bits))
    return _NAMED.get(method)
