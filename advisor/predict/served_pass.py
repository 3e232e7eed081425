"""Predicts one pass of an inference engine: an engine batches tokens of prompts and of answers in every pass.

The work of a pass is counted from the rows of the traced model; its costs are those of an `Engine`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.ops.registry import ITEMSIZE_BYTES, QUANTIZED_DTYPES
from advisor.predict.blocks import block_of, is_inner, is_of_experts
from advisor.predict.efficiency import efficiency_of
from advisor.predict.kernel_time import smooth_maximum
from advisor.predict.precision import Width
from advisor.predict.rates import narrow_bytes_per_s, sustained_bytes_per_s, sustained_flops_per_s
from advisor.predict.row_work import RowWork, count_rows, is_constant
from advisor.predict.step_memory import attribute
from advisor.records.device import REFERENCE_CLOCK_HZ, Device, Efficiency, Precision
from advisor.records.engine import Engine, NarrowKernel, PassCosts, narrow_kernel
from advisor.records.generation import CacheFormat, WeightFormat
from advisor.records.measurement import Known
from advisor.records.prediction import FloatArray, IndexArray
from advisor.records.workload import Dim, Operand, Row, Workload

_ATTENTION_KERNELS = 4.0
"""Kernels that one attention counts for: over a short KV cache it takes 12 us on an A100 and 9 us on an L40S, where a
product takes 3 and 2 us (aiconfigurator, attention_decode and gemm)."""
_RECURRENT = ("engine.selective_scan",)
"""Kernels that compute on the vector unit, beside those that read a state."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassWork:
    """The work of a pass at each batch size, (batches,).

    - `weight_bytes`, `narrow_bytes`: parameters read, without quantized weights, and quantized weights
    - `narrow_weights`: quantized weights read
    - `product_flops`, `narrow_flops`: of matrix products, without those of quantized weights, and of these
    - `expert_flops`: the part of both that is in the experts of a mixture
    - `narrow_inputs`, `narrow_kernels`: elements that go into products of quantized weights, and these products
    - `attention_flops`: of attention
    - `vector_flops`: of recurrent kernels without products, on the vector unit
    - `cache_bytes`: read from the KV cache, and read and written of the states of recurrent layers
    - `inner_bytes`, `outer_bytes`: activations moved by other kernels, which tensor parallelism divides, or repeats
      because they are as wide as what blocks pass to each other
    - `kernel_count`: kernels launched
    - `token_count`, `request_count`: tokens that go through the products, and requests that get a token
    - `logit_count`: logits from which tokens are sampled
    """

    weight_bytes: FloatArray
    narrow_bytes: FloatArray
    narrow_weights: FloatArray
    product_flops: FloatArray
    narrow_flops: FloatArray
    expert_flops: FloatArray
    narrow_inputs: FloatArray
    narrow_kernels: FloatArray
    attention_flops: FloatArray
    vector_flops: FloatArray
    cache_bytes: FloatArray
    inner_bytes: FloatArray
    outer_bytes: FloatArray
    kernel_count: FloatArray
    token_count: FloatArray
    request_count: FloatArray
    logit_count: FloatArray

    def scaled(self, **ratios: float | FloatArray) -> "PassWork":
        """Return the work with some fields multiplied."""
        return PassWork(**{one.name: getattr(self, one.name) * ratios.get(one.name, 1.0) for one in fields(self)})

    def plus(self, other: "PassWork") -> "PassWork":
        """Return the sum of both."""
        return PassWork(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    def joined(self, other: "PassWork") -> "PassWork":
        """Return one pass that does both: it reads the weights once and launches each kernel once."""
        once = ("weight_bytes", "narrow_bytes", "narrow_weights", "narrow_kernels", "kernel_count")
        larger = {name: np.maximum(getattr(self, name), getattr(other, name)) for name in once}
        return replace(self.plus(other), **larger)


def pass_work(part: Workload, *, batches: FloatArray, width: Width, tokens: int, truncates: bool) -> PassWork:
    """Count the work of one pass over `tokens` tokens of each request; `truncates`: it samples with top-k or top-p."""
    counted = {one.name: np.zeros(len(batches)) for one in fields(PassWork)}
    logits, hidden = 0.0, _hidden_size(part)
    expert_modules = {row.module for row in part.rows if is_of_experts(row)}
    for work in count_rows(part, batches=batches, width=width, compile_mode="compile").rows:
        row = work.row
        kept = any(operand.kept for operand in row.inputs)
        if kept or row.family == "attention" or row.op in _RECURRENT:
            name = "attention_flops" if row.family == "attention" else "vector_flops"
            counted[name] += row.count * work.cost.flops
            moved_bytes = work.parameter_bytes + work.read_bytes + work.cost.write_bytes
            counted["cache_bytes" if kept else "inner_bytes"] += row.count * moved_bytes
            counted["kernel_count"] += row.count * (_ATTENTION_KERNELS if row.family == "attention" else 1.0)
            continue
        is_inside = any(one.joined for one in row.outputs) or not work.compiled_bytes.any()
        narrow = next((one.dtype for one in row.inputs if is_constant(one) and one.dtype in QUANTIZED_DTYPES), None)
        if work.products:
            logits = float(np.max([np.max(product.n) for product in work.products]))
        if is_of_experts(row):
            counted["expert_flops"] += row.count * work.cost.flops
        if work.products and narrow is not None:
            counted["narrow_bytes"] += row.count * work.parameter_bytes
            counted["narrow_weights"] += row.count * work.parameter_bytes / ITEMSIZE_BYTES[narrow]
            counted["narrow_flops"] += row.count * work.cost.flops
            counted["narrow_kernels"] += 0 if is_inside else row.count
            if not is_inside:  # products of one input share it
                counted["narrow_inputs"] += row.count * work.call.inputs[0].numel / _copies_of_input(row, hidden)
        else:
            counted["weight_bytes"] += row.count * work.parameter_bytes
            counted["product_flops"] += row.count * work.cost.flops * bool(work.products)
        counted["kernel_count"] += 0 if is_inside else row.count
        if work.products or row.module not in expert_modules:
            divided_bytes, whole_bytes = _moved_bytes(work, hidden)
            counted["inner_bytes"] += row.count * divided_bytes
            counted["outer_bytes"] += row.count * whole_bytes
    return PassWork(
        **counted
        | {"token_count": tokens * batches, "request_count": batches, "logit_count": truncates * logits * batches}
    )


def _hidden_size(part: Workload) -> Dim | None:
    """Return the width of what blocks pass to each other, that of the last norm; None without one."""
    norms = (row for row in reversed(part.rows) if row.family in ("norm", "rms_norm") and not block_of(row))
    return next((row.outputs[0].shape[-1] for row in norms), None)


def _moved_bytes(work: RowWork, hidden: Dim | None) -> tuple[FloatArray, FloatArray]:
    """Return the activations that a row moves: what tensor parallelism divides, and what each GPU moves whole.

    A product of a part of a matrix reads the whole input or writes a whole result (Shoeybi et al., Megatron-LM, 2019,
    section 3). Grouped matmuls of experts read tokens by their index; what they write is read by the activation and by
    the weighted sum of the experts, so that other rows of these modules move nothing (vLLM: `fused_experts`).
    """
    row, nothing = work.row, 0.0 * work.compiled_bytes
    if not is_inner(row):
        return nothing, work.compiled_bytes
    if is_of_experts(row):
        read_bytes, written_bytes = (nothing + one.size_bytes for one in (work.call.inputs[0], work.call.outputs[0]))
        if _is_as_wide(row.outputs[0], hidden):
            return 2 * read_bytes, (2 + 1 / attribute(row, CHOSEN_EXPERTS)) * written_bytes
        return 2 * written_bytes, read_bytes
    operands = (*row.inputs, *row.outputs)
    moved = [
        (tensor.size_bytes, _is_as_wide(operand, hidden))
        for tensor, operand in zip((*work.call.inputs, *work.call.outputs), operands, strict=True)
        if not is_constant(operand)
    ]
    whole = sum(size_bytes for size_bytes, is_whole in moved if is_whole)
    whole_bytes = work.compiled_bytes * whole / np.maximum(sum(size_bytes for size_bytes, _ in moved), 1.0)
    return work.compiled_bytes - whole_bytes, whole_bytes


def _copies_of_input(row: Row, hidden: Dim | None) -> float:
    """Return how often the operand of a product has the same tokens: once for each expert that they chose."""
    return attribute(row, CHOSEN_EXPERTS) if is_of_experts(row) and _is_as_wide(row.inputs[0], hidden) else 1.0


def _is_as_wide(operand: Operand, hidden: Dim | None) -> bool:
    return operand.shape[-1:] == (hidden,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FormatRates:
    """The rates of devices in a precision and in the storage formats; arrays broadcast to (devices, 1).

    - `memory_bytes_per_s`, `flops_per_s`, `vector_flops_per_s`: of the memory, of the precision's unit for products,
      and of the vector unit
    - `narrow_flops_per_s`: of the unit that multiplies quantized weights
    - `narrow_memory_ratio`, `cache_memory_ratio`: rate at which quantized weights and the KV cache are read, over that
      of 16-bit numbers
    - `quantizing_kernels`, `quantizing_flops`: as in `NarrowKernel`
    - `expanded_from_tokens`: the same, infinity if weights are not expanded
    - `expert_compute_ratio`: as in `ExpertKernels`; 1 on CPUs
    """

    memory_bytes_per_s: FloatArray
    flops_per_s: FloatArray
    vector_flops_per_s: FloatArray
    narrow_flops_per_s: FloatArray
    narrow_memory_ratio: FloatArray
    cache_memory_ratio: FloatArray
    quantizing_kernels: FloatArray
    quantizing_flops: FloatArray
    expanded_from_tokens: FloatArray
    expert_compute_ratio: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceRates(FormatRates):
    """The rates of devices before the costs of an engine.

    - `kernel_ratio`, `core_ratio`: time of `PassCosts.kernel_s` and of `kernel_core_s`
    - `host_ratio`: time of the host's code relative to that at `REFERENCE_HOST_HZ`
    """

    kernel_ratio: FloatArray
    core_ratio: FloatArray
    host_ratio: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineRates(FormatRates):
    """The rates of devices in an engine, (devices, 1): coefficients of `PassCosts` applied to `DeviceRates`."""

    attention_flops_per_s: FloatArray
    token_ramp: FloatArray
    overlap_ratio: FloatArray
    kernel_s: FloatArray
    pass_s: FloatArray
    request_s: FloatArray
    sampling_s: FloatArray
    million_logits_s: FloatArray
    first_token_s: FloatArray
    prompt_token_s: FloatArray
    all_reduce_s: FloatArray

    def of(self, rows: IndexArray) -> "EngineRates":
        """Return the rates of the devices at these indices."""
        return EngineRates(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


COEFFICIENTS = tuple(one.name for one in fields(PassCosts) if one.metadata)
"""The fitted fields of `PassCosts`."""


def engine_rates(
    devices: Sequence[Device],
    precisions: Sequence[Precision],
    *,
    engine: Engine,
    efficiencies: Sequence[Efficiency],
    weights: WeightFormat = "auto",
    kv_cache: CacheFormat = "auto",
) -> EngineRates:
    """Return the rates of each device in its precision, with weights and KV cache in these formats."""
    costs = [costs_of(device, engine) for device in devices]
    columns = {name: np.array([getattr(one, name) for one in costs])[:, np.newaxis] for name in COEFFICIENTS}
    rates = device_rates(
        devices, precisions, engine=engine, efficiencies=efficiencies, weights=weights, kv_cache=kv_cache
    )
    return with_costs(rates, columns)


def with_costs(rates: DeviceRates, costs: Mapping[str, FloatArray]) -> EngineRates:
    """Return the rates with these coefficients."""
    host = rates.host_ratio
    sustained = {
        "memory_bytes_per_s": rates.memory_bytes_per_s * costs["memory_ratio"],
        "flops_per_s": rates.flops_per_s * costs["compute_ratio"],
        "narrow_flops_per_s": rates.narrow_flops_per_s * costs["compute_ratio"],
    }
    return EngineRates(
        **{one.name: getattr(rates, one.name) for one in fields(FormatRates)} | sustained,
        attention_flops_per_s=rates.flops_per_s * costs["attention_ratio"],
        kernel_s=rates.kernel_ratio * costs["kernel_s"] + rates.core_ratio * costs["kernel_core_s"],
        **{name: host * costs[name] for name in ("pass_s", "request_s", "first_token_s", "prompt_token_s")},
        **{name: costs[name] for name in ("sampling_s", "million_logits_s", "all_reduce_s", "token_ramp")},
        overlap_ratio=costs["overlap_ratio"],
    )


def costs_of(device: Device, engine: Engine) -> PassCosts:
    """Return the engine's costs on the device; an instruction set without costs has those of AVX2."""
    isa = "gpu" if device.kind == "gpu" else device.isa
    return engine.costs.get(isa) or engine.costs["avx2"]


def known_of(device: Device, engine: Engine) -> Known:
    """Return what the engine's costs on the device were fitted on: the device, others of its generation, or others.

    CPUs of one instruction set count as one generation.
    """
    costs = costs_of(device, engine)
    if device.id in costs.fitted_on:
        return "device"
    is_alike = bool(costs.fitted_on) if device.kind == "cpu" else device.generation in costs.fitted_generations
    return "generation" if is_alike else "vendor"


def is_backed(device: Device, *, engine: Engine, kernels: Sequence[NarrowKernel]) -> bool:
    """Return whether services or kernels of the engine were measured on the device's generation, in these formats."""
    is_measured = known_of(device, engine) != "vendor" or device.generation in engine.streamed_ratio
    return is_measured and all(device.generation in one.measured_on for one in kernels)


def device_rates(
    devices: Sequence[Device],
    precisions: Sequence[Precision],
    *,
    engine: Engine,
    efficiencies: Sequence[Efficiency],
    weights: WeightFormat = "auto",
    kv_cache: CacheFormat = "auto",
) -> DeviceRates:
    """Return the rates of each device in its precision, (devices, 1)."""
    lines = []
    for device, precision in zip(devices, precisions, strict=True):
        unit = "fp32" if precision == "fp32" else half_unit(device)
        if device.kind == "gpu":
            efficiency = efficiency_of(device, precision=precision, efficiencies=efficiencies)
            wide = _gpu_rates(device, engine, efficiency, unit=unit)
        else:
            wide = _cpu_rates(device, engine, unit=unit)
        flops_per_s = wide["flops_per_s"]
        lines.append(wide | _narrow_rates(device, engine, flops_per_s, unit=unit, weights=weights, kv_cache=kv_cache))
    return DeviceRates(
        **{one.name: np.array([line[one.name] for line in lines]).reshape(-1, 1) for one in fields(DeviceRates)}
    )


def _gpu_rates(device: Device, engine: Engine, efficiency: Efficiency, *, unit: str) -> dict[str, float]:
    """Return the rates of a GPU that multiplies on the unit; its kernels take cycles."""
    streamed = engine.streamed_ratio.get(device.generation, 0.0) * device.memory_bytes_per_s
    narrow = narrow_bytes_per_s(device, efficiency) or sustained_bytes_per_s(device, efficiency)
    return {
        "memory_bytes_per_s": streamed or narrow,
        "flops_per_s": sustained_flops_per_s(device, efficiency, unit=unit),
        "vector_flops_per_s": sustained_flops_per_s(device, efficiency, unit="vector"),
        "kernel_ratio": REFERENCE_CLOCK_HZ / device.clock_hz,
        "core_ratio": 0.0,
        "host_ratio": device.host_time_ratio,
    }


def _narrow_rates(
    device: Device, engine: Engine, flops_per_s: float, *, unit: str, weights: WeightFormat, kv_cache: CacheFormat
) -> dict[str, float]:
    """Return the rates of a device that depend on the storage formats, from its rate on the unit."""
    kernel = narrow_kernel(device, engine.weight_kernels, weights) or _WIDE
    cache = narrow_kernel(device, engine.cache_kernels, kv_cache) or _WIDE
    peaks = device.peak_flops_per_s
    faster = 1.0 if kernel.unit == "half" else peaks[kernel.unit] / peaks[unit]
    return {
        "narrow_flops_per_s": flops_per_s * faster * kernel.compute_ratio,
        "narrow_memory_ratio": kernel.memory_ratio,
        "cache_memory_ratio": cache.memory_ratio,
        "quantizing_kernels": kernel.quantizing_kernels,
        "quantizing_flops": kernel.quantizing_flops,
        "expanded_from_tokens": kernel.expanded_from_tokens or np.inf,
        "expert_compute_ratio": engine.experts.compute_ratio if device.kind == "gpu" else 1.0,
    }


_WIDE = NarrowKernel(formats=(), on=(), runs="", log_spread=0.0, source="")
"""Numbers in 16 bits."""


def half_unit(device: Device) -> str:
    """Return the unit that multiplies 16-bit numbers: the vector unit on a device without one for them."""
    return next(unit for unit in ("bf16", "fp16", "vector") if unit in device.peak_flops_per_s)


def _cpu_rates(device: Device, engine: Engine, *, unit: str) -> dict[str, float]:
    """Return the rates of a CPU that multiplies on the unit, of which the engine uses some NUMA nodes."""
    nodes, peaks, host = min(engine.cpu_nodes, device.numa_nodes), device.peak_flops_per_s, device.host_time_ratio
    cores = device.core_count * nodes / device.numa_nodes
    return {
        "memory_bytes_per_s": device.node_bytes_per_s * nodes,
        "flops_per_s": peaks[unit] * nodes / device.numa_nodes,
        "vector_flops_per_s": peaks["vector"] * nodes / device.numa_nodes,
        "kernel_ratio": host,
        "core_ratio": host / max(1.0, cores),
        "host_ratio": host,
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassTimes:
    """Seconds of one pass, (devices, batches): the parts overlap, so that they may add up to more than `total_s`."""

    compute_s: FloatArray
    memory_s: FloatArray
    overhead_s: FloatArray
    total_s: FloatArray


def pass_times(work: PassWork, rates: EngineRates) -> PassTimes:
    """Return the time of a pass: products, attention and other kernels, launches, scheduler and sampling."""
    tokens = np.maximum(work.token_count, 1.0)
    products_s = work.product_flops / rates.flops_per_s
    weight_bytes, moved_bytes, kernels = work.weight_bytes, work.inner_bytes + work.outer_bytes, work.kernel_count
    quantizing_s: FloatArray | float = 0.0
    if work.narrow_weights.any():
        is_expanded = tokens >= rates.expanded_from_tokens
        narrow_bytes = work.narrow_bytes / rates.narrow_memory_ratio
        wide_bytes = ITEMSIZE_BYTES["bfloat16"] * work.narrow_weights
        products_s = products_s + work.narrow_flops / rates.narrow_flops_per_s
        weight_bytes = weight_bytes + np.where(is_expanded, wide_bytes, narrow_bytes)
        moved_bytes = moved_bytes + is_expanded * (narrow_bytes + wide_bytes)
        kernels = kernels + work.narrow_kernels * (rates.quantizing_kernels + is_expanded)
        quantizing_s = rates.quantizing_flops * work.narrow_inputs / rates.vector_flops_per_s
    # Experts are narrow if any weights are.
    expert_rate = rates.narrow_flops_per_s if work.narrow_weights.any() else rates.flops_per_s
    products_s = products_s + work.expert_flops / expert_rate * (1 / rates.expert_compute_ratio - 1)
    products_s = products_s * (1 + rates.token_ramp / tokens)
    weights_s = weight_bytes / rates.memory_bytes_per_s
    attention_s = work.attention_flops / rates.attention_flops_per_s + work.vector_flops / rates.vector_flops_per_s
    cache_s = work.cache_bytes / (rates.memory_bytes_per_s * rates.cache_memory_ratio)
    moved_s = moved_bytes / rates.memory_bytes_per_s
    overhead_s = (
        kernels * rates.kernel_s
        + rates.pass_s
        + work.request_count * rates.request_s
        + (work.logit_count > 0) * rates.sampling_s
        + work.logit_count * 1e-6 * rates.million_logits_s
    )
    busy_s = smooth_maximum(products_s, weights_s, overlap=rates.overlap_ratio)
    busy_s = busy_s + smooth_maximum(attention_s, cache_s, overlap=rates.overlap_ratio) + moved_s + quantizing_s
    return PassTimes(
        compute_s=products_s + attention_s + quantizing_s,
        memory_s=weights_s + cache_s + moved_s,
        overhead_s=overhead_s,
        total_s=busy_s + overhead_s,
    )
