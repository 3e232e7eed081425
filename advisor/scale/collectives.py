"""Predicts the time of collective operations among all GPUs of a fabric.

Each time is the latency of all steps, plus bytes over bandwidth, plus a constant per call. Rings and trees leave and
enter every machine once, as in NCCL.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.scale import Fabric, Rate

Seconds: TypeAlias = NDArray[np.float64]

CALL_S = 8.4e-6
"""Constant time of any collective (NCCL 2.21, src/graph/tuning.cc, `baseLat`, protocol Simple)."""


def rank_count(fabric: Fabric) -> int:
    """Return the number of GPUs on all machines."""
    return fabric.gpu_count * fabric.machines


def all_gather_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of an all-gather, after which every GPU has all of `total_bytes`.

    A ring takes n - 1 steps, and each GPU sends 1/n of the bytes in each step (Thakur, Rabenseifner, Gropp, 2005). A
    reduce-scatter is the same operation in reverse and takes as long.
    """
    ranks = rank_count(fabric)
    if ranks == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    moved_s = (ranks - 1) / ranks * total_bytes / _bytes_per_s(fabric)
    return np.asarray(CALL_S + _ring_latency_s(fabric) + moved_s)


def all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of an all-reduce with the fastest of the ring, tree and hierarchical algorithms."""
    if rank_count(fabric) == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    fastest_s = np.minimum(ring_all_reduce_s(total_bytes, fabric), tree_all_reduce_s(total_bytes, fabric))
    if fabric.machines > 1 and fabric.gpu_count > 1:
        fastest_s = np.minimum(fastest_s, hierarchical_all_reduce_s(total_bytes, fabric))
    return fastest_s


def ring_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a ring all-reduce: 2 (n - 1) steps of 1/n each (Thakur, Rabenseifner, Gropp, 2005)."""
    ranks = rank_count(fabric)
    moved_s = 2 * (ranks - 1) / ranks * total_bytes / _bytes_per_s(fabric)
    return np.asarray(CALL_S + 2 * _ring_latency_s(fabric) + moved_s)


def tree_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a tree all-reduce: the GPUs of a machine form a chain, the machines a double binary tree.

    Every GPU sends all bytes twice (NCCL 2.21, src/graph/tuning.cc: a tree has half the bandwidth of its links;
    Sanders, Speck, Träff, 2009).
    """
    depth_s = (fabric.gpu_count - 1) * fabric.inside.latency_s
    if fabric.between is not None:
        depth_s = depth_s + math.log2(fabric.machines) * fabric.between.latency_s
    return np.asarray(CALL_S + 2 * depth_s + 2 * total_bytes / _bytes_per_s(fabric))


def hierarchical_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time of a reduce-scatter inside each machine, an all-reduce between machines and an all-gather inside.

    The g GPUs of a machine share its network: each sends 1/g of the bytes at 1/g of the bandwidth.
    """
    inside = Fabric(gpu_count=fabric.gpu_count, inside=fabric.inside)
    machines = Fabric(gpu_count=fabric.machines, inside=fabric.between or fabric.inside)
    return 2 * all_gather_s(total_bytes, inside) + ring_all_reduce_s(total_bytes, machines)


def send_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Return the time to send bytes from one GPU to another in the same machine."""
    inside = fabric.inside
    bytes_per_s = np.minimum(inside.bytes_per_s, inside.peer_bytes_per_s)
    return np.asarray(CALL_S + inside.latency_s + total_bytes / bytes_per_s)


def _ring_latency_s(fabric: Fabric) -> Rate:
    """Return the latency of the n - 1 steps of a ring; with m machines, m - 1 of them go over the network."""
    network_steps = fabric.machines - 1
    latency_s = (rank_count(fabric) - 1 - network_steps) * fabric.inside.latency_s
    return latency_s if fabric.between is None else latency_s + network_steps * fabric.between.latency_s


def _bytes_per_s(fabric: Fabric) -> Rate:
    """Return the bandwidth of a ring: the lower of the links inside a machine and the network between machines.

    If each pair of GPUs has its own link, the rings together use all of them; all rings share the network.
    """
    if fabric.between is not None and fabric.machines > 1 and fabric.gpu_count == 1:
        return fabric.between.bytes_per_s
    inside = np.minimum(fabric.inside.bytes_per_s, (fabric.gpu_count - 1) * fabric.inside.peer_bytes_per_s)
    if fabric.between is None or fabric.machines == 1:
        return inside
    return np.minimum(inside, fabric.between.bytes_per_s)
