"""Predicts the time of collective operations among all GPUs of a fabric.

Each time is the latency of all steps, plus bytes over bandwidth, plus a constant per call. Rings and trees leave and
enter every machine once, as in NCCL.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.engine import DirectKernels
from advisor.records.scale import Fabric, Link, Rate

Seconds: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How NCCL's GPUs tell each other that data has arrived: the constant time of a call, and the share of bandwidth.

    `place` is its index in `Link.step_s`.
    """

    place: int
    call_s: float
    rate_ratio: float


SIMPLE = Protocol(2, 8.4e-6, 1.0)
PROTOCOLS = (Protocol(0, 6.6e-6, 0.38), Protocol(1, 14e-6, 0.92), SIMPLE)
"""LL (a flag in every 8 bytes), LL128 (a flag in every 128) and Simple (a barrier for each chunk).

NCCL 2.27, src/graph/tuning.cc: `baseLatencies` of the ring, and the shares of bandwidth. LL is limited to 87.7 GB/s on
an A100, 141 on an H100 and 282 on a B200, 0.37 to 0.39 of what NCCL takes NVLink for.
"""
ALL_REDUCES = 2
"""All-reduces per block of a tensor-parallel group in forward, and again in backward: after attention and after
feed-forward (Megatron-LM)."""
SWITCH_S = 25e-6
"""Latency of an all-reduce in the switch (the same file, `hwLatencies` of NVLS)."""
SWITCH_RATIO = 0.71
"""Share of the switch's rate that its all-reduce reaches (`scripts/fit_collectives.py`)."""
_LEAST_SWITCHED = 3
"""With two GPUs nothing is saved in the switch: each sends all bytes, as in a ring."""
_PAIR = 2
_DIRECT_WAYS = (2, 4, 6, 8)
"""Sizes of groups for which vLLM has kernels (custom_all_reduce.py, `_SUPPORTED_WORLD_SIZES`)."""


def rank_count(fabric: Fabric) -> int:
    """Return the number of GPUs on all machines."""
    return fabric.gpu_count * fabric.machines


def all_gather_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of an all-gather, after which every GPU has all of `total_bytes`.

    A ring takes n - 1 steps, and each GPU sends 1/n of the bytes in each step (Thakur, Rabenseifner, Gropp, 2005). A
    reduce-scatter is the same operation in reverse and takes as long.
    """
    return _ring_s(total_bytes, fabric, rounds=1)


def all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of an all-reduce with the fastest algorithm: ring, tree, hierarchy, or inside the switch."""
    algorithms = [ring_all_reduce_s]
    if rank_count(fabric) > 1:
        algorithms.append(tree_all_reduce_s)
    if fabric.machines > 1 and fabric.gpu_count > 1:
        algorithms.append(hierarchical_all_reduce_s)
    if fabric.machines == 1 and fabric.gpu_count >= _LEAST_SWITCHED:
        algorithms.append(switch_all_reduce_s)
    return reduce(np.minimum, [algorithm(total_bytes, fabric) for algorithm in algorithms])


def ring_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a ring all-reduce: 2 (n - 1) steps of 1/n each (Thakur, Rabenseifner, Gropp, 2005)."""
    return _ring_s(total_bytes, fabric, rounds=2)


def _ring_s(total_bytes: Any, fabric: Fabric, *, rounds: int) -> Seconds:
    """Return the time of `rounds` times around the ring. Each GPU also copies its own part, at the link's rate."""
    ranks = rank_count(fabric)
    if ranks == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    moved_s = (rounds * (ranks - 1) + _narrowest(fabric).own_part_ratio) / ranks * total_bytes / _bytes_per_s(fabric)

    def in_protocol(protocol: Protocol) -> Any:
        return rounds * _ring_latency_s(fabric, protocol) + moved_s / protocol.rate_ratio

    return _fastest_protocol(in_protocol)


def _fastest_protocol(seconds: Callable[[Protocol], Any]) -> Seconds:
    """Return the time of a call with the fastest of the protocols."""
    return np.asarray(reduce(np.minimum, [protocol.call_s + seconds(protocol) for protocol in PROTOCOLS]))


def tree_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a tree all-reduce: the GPUs of a machine form a chain, the machines a double binary tree.

    Every GPU sends all bytes twice (NCCL 2.21, src/graph/tuning.cc: a tree has half the bandwidth of its links;
    Sanders, Speck, Träff, 2009).
    """

    def in_protocol(protocol: Protocol) -> Any:
        depth_s = _latency_s(fabric.inside, protocol, fabric.gpu_count - 1)
        depth_s = depth_s + _latency_s(fabric.between, protocol, math.log2(fabric.machines))
        return 2 * depth_s + 2 * total_bytes / _bytes_per_s(fabric) / protocol.rate_ratio

    return _fastest_protocol(in_protocol)


def switch_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of an all-reduce that NVSwitch computes (NVLS): each GPU sends and receives all bytes once.

    It is infinite without such a switch.
    """
    return SWITCH_S + switched_s(total_bytes, fabric.inside, share=SWITCH_RATIO)


def switched_s(total_bytes: Any, link: Link, *, share: float) -> Seconds:
    """Return the time in which the switch adds up these bytes at a share of its rate; infinite if it cannot."""
    rate = share * np.asarray(link.switch_bytes_per_s)
    return np.where(rate > 0, total_bytes / np.maximum(rate, 1.0), np.inf)


def hierarchical_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a reduce-scatter inside each machine, an all-reduce between machines and an all-gather inside.

    The g GPUs of a machine share its network: each sends 1/g of the bytes at 1/g of the bandwidth.
    """
    inside = Fabric(gpu_count=fabric.gpu_count, inside=fabric.inside)
    machines = Fabric(gpu_count=fabric.machines, inside=fabric.between or fabric.inside)
    return 2 * all_gather_s(total_bytes, inside) + ring_all_reduce_s(total_bytes, machines)


def all_to_all_s(total_bytes: Any, fabric: Fabric, *, network_bytes: Any = None) -> Seconds:
    """Return the time in which every GPU sends 1/n of its `total_bytes` to each GPU, itself included.

    All transfers start together (NCCL: grouped `ncclSend` and `ncclRecv`, Simple). The GPUs of a machine share its
    network, over which each sends the part for other machines, or `network_bytes` where one copy serves several GPUs.
    """
    ranks = rank_count(fabric)
    if ranks == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    inside, between = fabric.inside, fabric.between
    step_s = inside.step_s[SIMPLE.place]
    alone = replace(fabric, machines=1, between=None)
    moved_s = (fabric.gpu_count - 1 + inside.own_part_ratio) / ranks * total_bytes / _bytes_per_s(alone)
    if between is not None and fabric.machines > 1:
        step_s = np.maximum(step_s, between.step_s[SIMPLE.place])
        if network_bytes is None:
            network_bytes = (ranks - fabric.gpu_count) / ranks * total_bytes
        moved_s = np.maximum(moved_s, fabric.gpu_count * network_bytes / between.bytes_per_s)
    return np.asarray(SIMPLE.call_s + step_s + moved_s)


def send_s(total_bytes: Any, link: Link) -> Seconds:
    """Return the time to send bytes from one GPU to another over the link."""
    bytes_per_s = np.minimum(link.bytes_per_s, link.peer_bytes_per_s)
    return np.asarray(SIMPLE.call_s + link.step_s[SIMPLE.place] + total_bytes / bytes_per_s)


def tensor_all_reduce_s(sent_bytes: Any, fabric: Fabric, *, kernels: DirectKernels, waiting_s: Any) -> Seconds:
    """Return the time of an engine's all-reduce: with its own kernels where they apply, or with NCCL if that is faster.

    In one shot each GPU reads all bytes of all others; in two each adds up a part and then reads the parts of the
    others (vLLM: csrc/custom_all_reduce.cuh). In a third kernel the switch adds. They are for 2, 4, 6 or 8 GPUs of a
    machine with links to each other, or for 2 on PCIe. `waiting_s` is added.
    """
    link, ways = fabric.inside, fabric.gpu_count
    fastest_s: Seconds = all_reduce_s(sent_bytes, fabric)
    if fabric.machines == 1 and ways in _DIRECT_WAYS:
        rate = np.minimum(link.bytes_per_s, (ways - 1) * link.peer_bytes_per_s) * kernels.direct_ratio
        one_shot_s = kernels.direct_s + (ways - 1) * sent_bytes / rate
        two_shot_s = 2 * kernels.direct_s + 2 * (ways - 1) / ways * sent_bytes / rate
        applies = (sent_bytes < kernels.direct_most_bytes) & (np.isinf(link.shared_bytes_per_s) | (ways == _PAIR))
        fastest_s = np.where(applies, np.minimum(fastest_s, np.minimum(one_shot_s, two_shot_s)), fastest_s)
        if ways > _PAIR:
            in_switch_s = kernels.switch_s + switched_s(sent_bytes, link, share=kernels.switch_ratio)
            applies = sent_bytes <= kernels.switch_most_bytes
            fastest_s = np.where(applies, np.minimum(fastest_s, in_switch_s), fastest_s)
    total_s: Seconds = waiting_s + fastest_s
    return total_s


def expert_exchange_s(sent_bytes: Any, fabric: Fabric, *, chosen: int) -> Seconds:
    """Return the time to send tokens, each to `chosen` experts, from the GPU that has them to those with the experts.

    A token goes once to each machine and once to each GPU on which it has an expert (deepseek-ai/DeepEP, normal
    kernels); of n places, k choices reach n (1 - (1 - 1/n)^k).
    """

    def reached(places: int) -> float:
        return places * (1 - (1 - 1 / places) ** chosen)

    network_bytes = sent_bytes * reached(fabric.machines) * (1 - 1 / fabric.machines)
    return all_to_all_s(sent_bytes * reached(rank_count(fabric)), fabric, network_bytes=network_bytes)


def _ring_latency_s(fabric: Fabric, protocol: Protocol) -> Rate:
    """Return the latency of the n - 1 steps of a ring; with m machines, m - 1 of them go over the network."""
    network_steps = fabric.machines - 1
    inside_s = _latency_s(fabric.inside, protocol, rank_count(fabric) - 1 - network_steps)
    return inside_s + _latency_s(fabric.between, protocol, network_steps)


def _latency_s(link: Link | None, protocol: Protocol, steps: float) -> Rate:
    return 0.0 if link is None or not steps else steps * link.step_s[protocol.place]


def _narrowest(fabric: Fabric) -> Link:
    """Return the link that sets the pace of a ring: the network, if it leaves the machine."""
    return fabric.inside if fabric.between is None or fabric.machines == 1 else fabric.between


def _bytes_per_s(fabric: Fabric) -> Rate:
    """Return the bandwidth of a ring: the lower of the links inside a machine and the network between machines.

    If each pair of GPUs has its own link, the rings together use all of them; all rings share the network, and the host
    if they go through it.
    """
    if fabric.between is not None and fabric.machines > 1 and fabric.gpu_count == 1:
        return fabric.between.bytes_per_s
    link = fabric.inside
    inside = np.minimum(link.bytes_per_s, max(1, fabric.gpu_count - 1) * link.peer_bytes_per_s)
    inside = np.minimum(inside, link.shared_bytes_per_s / fabric.gpu_count)
    if fabric.between is None or fabric.machines == 1:
        return inside
    return np.minimum(inside, fabric.between.bytes_per_s)
