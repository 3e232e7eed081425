"""Stores the weights and the KV cache of a served language model in narrow formats, in its operands and its memory.

The device decides which kernels read them (`advisor.records.engine.NarrowKernel`). Embedding, norms and output layer
stay in 16 bits, except in GGUF files, which also quantize the output and the embedding.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.ops.attention import CACHED_ATTENTION
from advisor.ops.registry import ITEMSIZE_BYTES, QUANTIZED_DTYPES
from advisor.predict.blocks import block_of, is_of_experts
from advisor.predict.row_work import constant_bytes, is_constant
from advisor.records.generation import CacheFormat, Generation, WeightFormat
from advisor.records.workload import Operand, Row, StoredBytes, Workload

_HALF_OF_FULL = 0.5
"""Bytes in 16 bits over those in fp32, in which models are traced."""
_NARROW = QUANTIZED_DTYPES | {"bfloat16"}
_MATRIX_DIMS = 2
"""Dimensions of a weight; a vector is a bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The dtypes of a format.

    - `matrices`: of the repeated blocks
    - `sensitive`: of the projection to values, and of that from the feed-forward layer, if they have more bits
    - `outside`: of output layer and embedding; None: they stay
    - `only_experts`: matrices other than those of experts stay
    """

    matrices: str
    sensitive: str | None = None
    outside: tuple[str, str] | None = None
    only_experts: bool = False


_STORED: Mapping[WeightFormat, _Stored] = {
    "bf16": _Stored(matrices="bfloat16"),
    "fp8": _Stored(matrices="float8_e4m3fn"),
    "int8": _Stored(matrices="int8"),
    "int4": _Stored(matrices="int4"),
    "nf4": _Stored(matrices="nf4"),
    "nvfp4": _Stored(matrices="nvfp4"),
    # openai/gpt-oss: its `modules_to_not_convert` are attention, router, embedding and output.
    "mxfp4": _Stored(matrices="mxfp4", only_experts=True),
    # llama.cpp: src/llama-quant.cpp, `llama_tensor_get_type`.
    "q8_0": _Stored(matrices="q8_0", outside=("q8_0", "q8_0")),
    "q6_k": _Stored(matrices="q6_k", outside=("q6_k", "q6_k")),
    "q5_k_m": _Stored(matrices="q5_k", sensitive="q5_k/q6_k", outside=("q6_k", "q5_k")),
    "q4_k_m": _Stored(matrices="q4_k", sensitive="q4_k/q6_k", outside=("q6_k", "q4_k")),
    "q4_0": _Stored(matrices="q4_0", outside=("q6_k", "q4_0")),
}
_SENSITIVE = ("v_proj", "value", "down_proj", "fc2", "fc_out", "dense_4h_to_h", "w2", "wo")
"""Last names of modules that llama.cpp calls attn_v and ffn_down (gguf-py: `tensor_mapping.py`)."""
_CACHE_DTYPES: Mapping[CacheFormat, str] = {"fp8": "float8_e4m3fn", "q8_0": "q8_0"}


def stored_bits(weights: WeightFormat) -> float:
    """Return the bits of a weight in most matrices of the blocks."""
    return 8 * ITEMSIZE_BYTES[_STORED[weights].matrices]


def with_weights(workload: Workload, weights: WeightFormat) -> Workload:
    """Return the workload with weights in this format, in its operands and in its memory; "auto" changes nothing.

    Weights in another format, as which a model may be published, are stored anew, but for those of GGUF files.
    """
    generation = workload.generation
    if generation is None or weights in ("auto", generation.weights):
        return workload
    workload, stored = _as_traced(workload), _STORED[weights]
    rows = tuple(_stored_in(row, stored) for row in workload.rows)
    moved = _moved(workload.rows, rows)
    embedding = _moved(workload.rows, rows, of_embedding=True)

    def narrowed(parameters: StoredBytes) -> StoredBytes:
        wide = sum(before for before, _ in moved)
        of_own = [one for one in embedding if wide + one[0] <= parameters.full[0]]  # else it is the output's matrix
        before, after = (sum(pair) for pair in zip(*moved, *of_own, strict=True)) if moved else (0.0, 0.0)
        return _with_moved(parameters, before, after)

    return replace(
        workload,
        generation=replace(generation, weights=weights),
        rows=rows,
        memory=tuple(replace(line, parameters=narrowed(line.parameters)) for line in workload.memory),
    )


def narrower(workload: Workload, formats: Iterable[WeightFormat]) -> dict[WeightFormat, Workload]:
    """Return the workload with weights in those of the formats in which it takes less memory.

    A format may be wider than the one at hand, or of experts alone.
    """
    stored = {weights: with_weights(workload, weights) for weights in formats}
    return {weights: one for weights, one in stored.items() if _weight_bytes(one) < _weight_bytes(workload)}


def _weight_bytes(workload: Workload) -> float:
    """Return the bytes of all parameters, of those in fp32 as in 16 bits."""
    parameters = workload.memory[0].parameters
    return _HALF_OF_FULL * parameters.full[0] + parameters.other[0]


def _as_traced(workload: Workload) -> Workload:
    """Return the workload with the matrices of its blocks in fp32 again."""
    rows = tuple(
        _in_dtype(row, "float32", lambda one: is_constant(one) and one.dtype in _NARROW)
        if row.family == "matmul"
        else row
        for row in workload.rows
    )
    narrow, full = (sum(sizes) for sizes in zip((0.0, 0.0), *_moved(workload.rows, rows), strict=True))
    return replace(
        workload,
        rows=rows,
        memory=tuple(
            replace(line, parameters=_with_moved(line.parameters, -full, -narrow)) for line in workload.memory
        ),
    )


def _in_dtype(row: Row, dtype: str, is_changed: Callable[[Operand], bool]) -> Row:
    """Return the row with some of its inputs stored in this dtype."""
    return replace(row, inputs=tuple(replace(one, dtype=dtype) if is_changed(one) else one for one in row.inputs))


def _moved(rows: Sequence[Row], changed: Sequence[Row], *, of_embedding: bool = False) -> list[tuple[float, float]]:
    """Return the bytes of each weight whose dtype changed, before and after; each weight is read in prefill."""
    return [
        one
        for before, after in zip(rows, changed, strict=True)
        if before.phase == "prefill" and (before.family == "embedding") == of_embedding
        for one in _changed_bytes(before, after)
    ]


def _with_moved(parameters: StoredBytes, full_bytes: float, other_bytes: float) -> StoredBytes:
    """Return the bytes with so many fewer in fp32 and so many more in other formats."""
    full, other = parameters.full[0] - full_bytes, parameters.other[0] + other_bytes
    return replace(parameters, full=(full, *parameters.full[1:]), other=(other, *parameters.other[1:]))


def _changed_bytes(row: Row, changed: Row) -> list[tuple[float, float]]:
    """Return the bytes of each operand whose dtype changed, before and after, in all calls of the row."""
    return [
        tuple(row.count * constant_bytes(one, dtype=one.dtype) for one in pair)  # type: ignore[misc]
        for pair in zip(row.inputs, changed.inputs, strict=True)
        if pair[0].dtype != pair[1].dtype
    ]


def _stored_in(row: Row, stored: _Stored) -> Row:
    """Return the row with its fp32 weights in the dtype of their kind."""
    dtype: str | None = None
    if row.family == "matmul" and block_of(row) and (is_of_experts(row) or not stored.only_experts):
        is_sensitive = row.module.rpartition(".")[2] in _SENSITIVE
        dtype = (is_sensitive and stored.sensitive) or stored.matrices
    elif stored.outside is not None and row.family in ("matmul", "embedding"):
        dtype = stored.outside[row.family == "embedding"]
    if dtype is None:
        return row
    return _in_dtype(
        row, dtype, lambda one: one.dtype == "float32" and is_constant(one) and len(one.shape) >= _MATRIX_DIMS
    )


def with_kv_cache(workload: Workload, kv_cache: CacheFormat) -> Workload:
    """Return the workload with keys and values cached in this format; "auto" changes nothing.

    States of recurrent layers, and what an encoder's tokens leave, stay as they are. Raises ValueError if the workload
    already has another format.
    """
    generation = workload.generation
    if generation is None or kv_cache in ("auto", generation.kv_cache):
        return workload
    if generation.kv_cache != "auto":
        raise ValueError(f"{workload.name} has a KV cache in {generation.kv_cache}")
    dtype = _CACHE_DTYPES[kv_cache]
    share = _grown_share(generation)
    ratio = ITEMSIZE_BYTES[dtype] / ITEMSIZE_BYTES["float32"]

    def narrowed(cache: StoredBytes) -> StoredBytes:
        grown = cache.full[1] * share
        return replace(
            cache,
            full=(cache.full[0], cache.full[1] - grown, *cache.full[2:]),
            other=(cache.other[0], cache.other[1] + ratio * grown, *cache.other[2:]),
        )

    def cached(row: Row) -> Row:
        return _in_dtype(row, dtype, lambda one: one.kept) if row.op in CACHED_ATTENTION else row

    return replace(
        workload,
        generation=replace(generation, kv_cache=kv_cache),
        rows=tuple(map(cached, workload.rows)),
        memory=tuple(replace(line, kv_cache=narrowed(line.kv_cache)) for line in workload.memory),
    )


def _grown_share(generation: Generation) -> float:
    """Return the part of a request's cache that keys and values of the decoder's tokens take."""
    if not generation.cached:
        return 1.0
    tokens = generation.decoder_tokens + generation.output_tokens
    whole = generation.cache_bytes(tokens)
    fixed = sum(layers.request_bytes for layers in generation.cached)
    return 1 - fixed / whole if whole else 0.0
