"""Bytes and a fabric in, the seconds of a collective operation among all its GPUs out.

Each is some steps of latency, bytes over a bandwidth, and what a call takes at all. Rings and trees leave and enter
every machine once, as NCCL's do.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.scale import Fabric, Rate

Seconds: TypeAlias = NDArray[np.float64]

CALL_S = 8.4e-6
"""Of any collective (NCCL 2.21, src/graph/tuning.cc, `baseLat`, protocol Simple)."""


def rank_count(fabric: Fabric) -> int:
    """The GPUs of all machines."""
    return fabric.gpu_count * fabric.machines


def all_gather_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Until every GPU has all of `total_bytes`, of which each began with its share.

    A ring: n - 1 steps, in each of which every GPU passes 1/n on (Thakur, Rabenseifner, Gropp, 2005). A reduce-scatter
    is the same backwards.
    """
    ranks = rank_count(fabric)
    if ranks == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    moved_s = (ranks - 1) / ranks * total_bytes / _bytes_per_s(fabric)
    return np.asarray(CALL_S + _ring_latency_s(fabric) + moved_s)


def all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Until every GPU has the sum of all, by whichever of ring, tree and hierarchy is soonest."""
    if rank_count(fabric) == 1:
        return np.zeros_like(total_bytes, dtype=np.float64)
    soonest = np.minimum(ring_all_reduce_s(total_bytes, fabric), tree_all_reduce_s(total_bytes, fabric))
    if fabric.machines > 1 and fabric.gpu_count > 1:
        soonest = np.minimum(soonest, hierarchical_all_reduce_s(total_bytes, fabric))
    return soonest


def ring_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """A reduce-scatter and an all-gather: 2 (n - 1) steps of 1/n each (Thakur, Rabenseifner, Gropp, 2005)."""
    ranks = rank_count(fabric)
    moved_s = 2 * (ranks - 1) / ranks * total_bytes / _bytes_per_s(fabric)
    return np.asarray(CALL_S + 2 * _ring_latency_s(fabric) + moved_s)


def tree_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Up a tree and down again: the GPUs of a machine in a chain, machines in a double binary tree.

    Every GPU passes all bytes on twice (NCCL 2.21, src/graph/tuning.cc: a tree has half the bandwidth of its links;
    Sanders, Speck, Träff, 2009).
    """
    depth_s = (fabric.gpu_count - 1) * fabric.inside.latency_s
    if fabric.between is not None:
        depth_s = depth_s + math.log2(fabric.machines) * fabric.between.latency_s
    return np.asarray(CALL_S + 2 * depth_s + 2 * total_bytes / _bytes_per_s(fabric))


def hierarchical_all_reduce_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """Reduce-scatter inside each machine, all-reduce of every GPU's share with its like elsewhere, all-gather inside.

    The g GPUs of a machine share its network: each has 1/g of the bytes to send over 1/g of it.
    """
    inside = Fabric(gpu_count=fabric.gpu_count, inside=fabric.inside)
    machines = Fabric(gpu_count=fabric.machines, inside=fabric.between or fabric.inside)
    return 2 * all_gather_s(total_bytes, inside) + ring_all_reduce_s(total_bytes, machines)


def send_s(total_bytes: Any, fabric: Fabric) -> Seconds:
    """From one GPU to the next of its machine."""
    inside = fabric.inside
    bytes_per_s = np.minimum(inside.bytes_per_s, inside.peer_bytes_per_s)
    return np.asarray(CALL_S + inside.latency_s + total_bytes / bytes_per_s)


def _ring_latency_s(fabric: Fabric) -> Rate:
    """Of n - 1 steps, as many of them over the network as there are machines but one."""
    network_steps = fabric.machines - 1
    latency_s = (rank_count(fabric) - 1 - network_steps) * fabric.inside.latency_s
    return latency_s if fabric.between is None else latency_s + network_steps * fabric.between.latency_s


def _bytes_per_s(fabric: Fabric) -> Rate:
    """The links inside a machine, by as many rings as they allow, in series with its network, which all rings share."""
    if fabric.between is not None and fabric.machines > 1 and fabric.gpu_count == 1:
        return fabric.between.bytes_per_s
    inside = np.minimum(fabric.inside.bytes_per_s, (fabric.gpu_count - 1) * fabric.inside.peer_bytes_per_s)
    if fabric.between is None or fabric.machines == 1:
        return inside
    return np.minimum(inside, fabric.between.bytes_per_s)
