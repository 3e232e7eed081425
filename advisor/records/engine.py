"""Defines how an inference engine serves a language model: its limits, and what a pass costs beside the kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import Device, Prior, fitted

EngineIsa = Literal["gpu", "amx", "avx512_bf16", "avx512", "avx2", "arm"]
"""The instruction sets for which an engine has kernels of their own; "gpu" for all GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCosts:
    """The costs of a pass on one instruction set; `scripts/fit_engine.py` fits the coefficients to measured services.

    - `memory_ratio`: share at which weights and KV cache are read: on GPUs of the rate of narrow products, on CPUs of
      the measured read bandwidth
    - `compute_ratio`: share of the unit's sustained peak in products of many tokens
    - `token_ramp`: tokens in a pass at which half of that share is reached
    - `attention_ratio`: the same share in attention to a prompt
    - `overlap_ratio`: share of the shorter of compute and memory time that is hidden behind the longer
    - `kernel_s`: each kernel of a pass, launched inside a CUDA graph, or by a CPU at `REFERENCE_HOST_HZ`
    - `kernel_core_s`: work of a kernel that the cores of a CPU share, in addition
    - `pass_s`, `request_s`: scheduler, sampler and detokenizer for each pass and for each request in it
    - `sampling_s`, `million_logits_s`: sampling with top-k or top-p, for each pass and for each million logits
    - `first_token_s`, `prompt_token_s`: HTTP, tokenizer and queues for a request, and for each token of its prompt
    - `all_reduce_s`: what an all-reduce takes beyond its kernel: the GPUs wait for the slowest of them
    - `tpot_log_spread`, `ttft_log_spread`, `load_log_spread`: standard deviation of log(measured / predicted) of TPOT
      with one request, of TTFT, and of TPOT under load, on machines left out of the fit; `known_log_spread` of TPOT on
      other machines with a CPU or GPU that was in the fit
    - `fitted_on`, `fitted_generations`: devices in the fit, and their generations
    """

    memory_ratio: float = fitted(0.0, gpu=Prior(1.0, 0.7, 1.15, 0.1), cpu=Prior(1.0, 0.5, 1.6, 0.25))
    compute_ratio: float = fitted(0.0, gpu=Prior(0.7, 0.3, 1.1, 0.3), cpu=Prior(0.3, 0.03, 1.1, 0.7))
    token_ramp: float = fitted(0.0, gpu=Prior(16.0, 1.0, 128.0, 0.7), cpu=Prior(2.0, 0.05, 64.0, 1.0))
    attention_ratio: float = fitted(0.0, gpu=Prior(0.4, 0.05, 1.0, 0.5), cpu=Prior(0.1, 0.003, 1.0, 1.0))
    overlap_ratio: float = fitted(0.0, gpu=Prior(0.6, 0.2, 1.0, 0.3), cpu=Prior(0.6, 0.1, 1.0, 0.3))
    kernel_s: float = fitted(0.0, gpu=Prior(3.5e-6, 1e-6, 1e-5, 0.3), cpu=Prior(1e-5, 1e-6, 1e-4, 0.7))
    kernel_core_s: float = fitted(0.0, cpu=Prior(1e-5, 1e-7, 1e-3, 1.0))
    pass_s: float = fitted(0.0, gpu=Prior(1e-4, 1e-5, 2e-3, 0.7), cpu=Prior(1e-3, 1e-4, 1e-2, 0.7))
    request_s: float = fitted(0.0, gpu=Prior(1e-5, 1e-6, 2e-4, 0.7), cpu=Prior(1e-4, 1e-6, 5e-3, 1.0))
    sampling_s: float = fitted(0.0, gpu=Prior(2e-4, 1e-5, 2e-3, 0.7), cpu=Prior(5e-4, 1e-5, 1e-2, 1.0))
    million_logits_s: float = fitted(0.0, gpu=Prior(3e-5, 1e-6, 1e-3, 1.0), cpu=Prior(3e-2, 1e-3, 3e-1, 1.0))
    first_token_s: float = fitted(0.0, gpu=Prior(8e-3, 1e-3, 5e-2, 0.5), cpu=Prior(8e-3, 1e-3, 1e-1, 0.7))
    prompt_token_s: float = fitted(0.0, gpu=Prior(8e-6, 1e-6, 5e-5, 0.5), cpu=Prior(8e-6, 1e-6, 1e-4, 0.7))
    all_reduce_s: float = fitted(0.0, gpu=Prior(5e-6, 1e-6, 5e-5, 0.7))
    tpot_log_spread: float
    known_log_spread: float
    load_log_spread: float
    ttft_log_spread: float
    fitted_on: tuple[str, ...]
    fitted_generations: tuple[str, ...] = ()


NarrowUnit = Literal["half", "fp8", "int8", "fp4"]
"""The unit that multiplies quantized weights; "half": they are converted to 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowKernel:
    """How an engine multiplies weights, or reads a KV cache, in some storage formats.

    - `formats`, `on`: those of `WeightFormat` or `CacheFormat`; generations of GPUs, and instruction sets of CPUs. A
      device that lacks `unit` has the next kernel that suits, or none
    - `runs`: what the kernel does, for the reader
    - `measured_on`: generations on which it was timed, alone or in a service; on others its figures are a guess
    - `compute_ratio`: share of the unit's peak relative to the share that 16-bit products reach of theirs
    - `memory_ratio`: rate at which it reads the narrow numbers, relative to that of 16-bit ones
    - `quantizing_kernels`, `quantizing_flops`: kernels that quantize the input of a product, and the FLOP of the vector
      unit that they take as long as for each element; 0 if the product quantizes it
    - `expanded_from_tokens`: from so many tokens in a pass on, a kernel of its own writes the weights in 16 bits; None:
      products convert them in registers
    - `log_spread`: added to the spread of times, for what is not known of the kernel
    """

    formats: tuple[str, ...]
    on: tuple[str, ...]
    runs: str
    measured_on: tuple[str, ...] = ()
    unit: NarrowUnit = "half"
    compute_ratio: float = 1.0
    memory_ratio: float = 1.0
    quantizing_kernels: float = 0.0
    quantizing_flops: float = 0.0
    expanded_from_tokens: int | None = None
    log_spread: float
    source: str


def narrow_kernel(device: Device, kernels: Mapping[str, NarrowKernel], stored_in: str) -> NarrowKernel | None:
    """Return the first of the kernels for numbers in this format that the device runs; None if it runs none."""
    kind = device.generation if device.kind == "gpu" else device.isa
    return next(
        (
            one
            for one in kernels.values()
            if stored_in in one.formats
            and kind in one.on
            and (one.unit == "half" or one.unit in device.peak_flops_per_s)
        ),
        None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """An engine's defaults for the requests in a pass, and for the tokens in it."""

    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectKernels:
    """An engine's own all-reduces, in which GPUs read each other's memory; `scripts/fit_collectives.py` fits them.

    - `direct_s`: a kernel that reads all other GPUs at once; in two shots there are two
    - `direct_ratio`: share of the link's rate that they reach
    - `switch_s`, `switch_ratio`: the same of a kernel that lets the switch add
    - `direct_most_bytes`, `switch_most_bytes`: the largest messages that they take
    """

    direct_s: float
    direct_ratio: float
    direct_most_bytes: float
    switch_s: float
    switch_ratio: float
    switch_most_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKernels:
    """An engine's grouped matmuls of the experts of a mixture.

    - `compute_ratio`: compute throughput on GPUs relative to that of other matmuls in the same format
    - `log_spread`: added to the spread of times on any device; if that of the kernels for narrow weights or of an
      unmeasured generation is larger, that one is added instead, as errors of layers of experts contain them
    """

    compute_ratio: float
    log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An inference engine and its release.

    - `limits`: for a CPU, a GPU, and a GPU of at least `large_gpu_bytes` whose name has none of `not_large`
    - `memory_ratio`: share of a GPU's memory for weights, activations and KV cache
    - `cpu_memory_ratio`: the same of a CPU's NUMA node, which holds the operating system too
    - `cpu_nodes`: NUMA nodes whose cores a copy uses
    - `block_tokens`: KV memory is reserved in blocks of this size
    - `streamed_ratio`: share of the datasheet's bandwidth at which a GPU reads weights, by generation whose kernels
      were timed; others read at the rate of narrow products
    - `fp16_isas`: instruction sets on which weights are in fp16; on others they are in bf16, whether or not the CPU has
      a unit for it
    - `gpu_vendors`, `other_vendor_log_spread`: the vendors of the GPUs in the fit, and what is added to the spread of
      times on a GPU of another one
    - `other_generation_log_spread`, `other_generation_ttft_log_spread`: the same for a generation without a service in
      the fit: of times per token, with the spread of kernels and experts, and of the time to first token
    - `experts`: its kernels for the experts of a mixture
    - `all_reduce`: its own kernels for an all-reduce
    - `weight_kernels`, `cache_kernels`: by name; a device has the first that suits
    - `costs`: by instruction set
    """

    name: str
    version: str
    source: str
    limits: Mapping[str, BatchLimits]
    large_gpu_bytes: float
    not_large: tuple[str, ...]
    memory_ratio: float
    cpu_memory_ratio: float
    cpu_nodes: int
    block_tokens: int
    streamed_ratio: Mapping[str, float]
    fp16_isas: tuple[str, ...]
    gpu_vendors: tuple[str, ...]
    other_vendor_log_spread: float
    other_generation_log_spread: float = 0.0
    other_generation_ttft_log_spread: float = 0.0
    experts: ExpertKernels
    all_reduce: DirectKernels
    weight_kernels: Mapping[str, NarrowKernel]
    cache_kernels: Mapping[str, NarrowKernel]
    costs: Mapping[str, PassCosts]

    def usable_bytes(self, device: Device) -> float:
        """Return the part of a device's memory for weights, activations and KV cache."""
        return device.memory_bytes * (self.memory_ratio if device.kind == "gpu" else self.cpu_memory_ratio)

    def batch_limits(self, device: Device) -> BatchLimits:
        """Return its default limits on this device."""
        if device.kind == "cpu":
            return self.limits["cpu"]
        is_large = device.memory_bytes >= self.large_gpu_bytes and not any(one in device.id for one in self.not_large)
        return self.limits["large_gpu" if is_large else "gpu"]

    def vendor_log_spread(self, device: Device) -> float:
        """Return what is added to the spread of times for the vendor of a device."""
        is_known = device.kind == "cpu" or device.vendor in self.gpu_vendors
        return 0.0 if is_known else self.other_vendor_log_spread

    def reserved_tokens(self, token_count: int) -> int:
        """Return the tokens for which memory is reserved: whole blocks."""
        return -(-token_count // self.block_tokens) * self.block_tokens
