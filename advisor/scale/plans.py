"""Lists the parallel plans to compare for a machine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.errors import UsageError
from advisor.predict.blocks import outermost
from advisor.predict.step_memory import sparse_gradients
from advisor.records.device import Device
from advisor.records.scale import Plan, Sharding, Spreading
from advisor.records.workload import Workload

_SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")
_PIPELINE_SHARDINGS: tuple[Sharding, ...] = ("none", "zero1")
"""Every micro-batch of a pipeline needs all gradients and parameters of its stage, so sharding them would move them
again for each (Rajbhandari et al., 2020; deepspeed/runtime/pipe/engine.py does not allow it)."""
_PIPELINE_PASSES = 4
"""Micro-batches per stage: with this many, pipeline bubbles are negligible (Huang et al., GPipe, 2019, section 2.3)."""


def plans_of(workload: Workload, *, gpu_count: int, machines: int, asked: Spreading) -> Iterator[Plan]:
    """Yield the plans that use `gpu_count` GPUs of each machine, those that need the fewest code changes first.

    A model is split along its repeated blocks, and only inside one machine, where links are fast. Training may combine
    several such groups with data parallelism. Inference is replicated, or split among all GPUs of one machine. Served
    language models have `served_plans`. FSDP and ZeRO take no sparse gradients, and the tables that have them make up
    the model: each GPU holds a copy.
    """
    passes = asked.accumulate if workload.mode == "training" else 1
    common = Plan(machines=machines, accumulate=passes, checkpoint_activations=asked.checkpoint_activations)
    ranks = gpu_count * machines
    if ranks == 1:
        yield common
        return
    is_training = workload.mode == "training"
    if sparse_gradients(workload):
        if asked.sharding not in (None, "none"):
            raise UsageError(
                f"--sharding {asked.sharding}: it takes no sparse gradients, which {workload.name} has",
                hint="leave --sharding out, build the tables with sparse=False, or divide them by rows or by table",
            )
        yield replace(common, data=ranks)
        return
    shardings = (asked.sharding,) if asked.sharding else _SHARDINGS if is_training else _SHARDINGS[:1]
    for sharding in shardings:
        yield replace(common, data=ranks, sharding=sharding)
    if asked.sharding:
        return
    block_count = sum(one.count for one in outermost(workload.blocks))
    for ways in _ways(gpu_count):
        groups = ranks // ways
        if block_count == 0 or (groups > 1 and not is_training):
            continue
        for sharding in _SHARDINGS if groups > 1 and is_training else _SHARDINGS[:1]:
            yield replace(common, tensor=ways, data=groups, sharding=sharding)
        if ways <= block_count:
            in_turn = passes if passes > 1 else _PIPELINE_PASSES * ways
            for sharding in _PIPELINE_SHARDINGS if groups > 1 else _SHARDINGS[:1]:
                yield replace(common, accumulate=in_turn, pipeline=ways, data=groups, sharding=sharding)


def served_plans(
    workload: Workload, *, gpu_count: int, asked: Spreading, machines: int = 1, is_linked: bool = True
) -> Iterator[Plan]:
    """Yield the plans of a served language model on `gpu_count` GPUs of each machine.

    On one machine these are copies of tensor-parallel groups; pipelines are used where they are asked for, where the
    heads do not divide among the GPUs, or where these have no links to each other, as vLLM advises
    (docs/serving/parallelism_scaling.md). Several machines hold one copy: stages of layers on each, or tensor
    parallelism over the network. Copies that divide experts are asked for, on any number of machines.
    """
    block_count = sum(one.count for one in outermost(workload.blocks) if one.phase != "decode")
    total = gpu_count * machines
    narrow = [ways for ways in (1, *_ways(gpu_count)) if divides_heads(workload, ways)]
    if asked.tensor:
        tensors = [asked.tensor]
    elif machines == 1 or asked.expert:
        tensors = narrow
    else:
        tensors = [narrow[-1], total]
    for tensor in tensors:
        if total % tensor or not divides_heads(workload, tensor) or (tensor > gpu_count and tensor % gpu_count):
            continue
        left = total // tensor
        if asked.pipeline:
            stages = {asked.pipeline}
        elif asked.expert:
            stages = {1}
        elif machines > 1:
            stages = {left}
        else:
            stages = {1} if is_linked and divides_heads(workload, gpu_count) else {1, left}
        for pipeline in sorted(stages):
            data, rest = divmod(left, pipeline)
            is_one_copy = machines == 1 or data == 1 or asked.expert is not None
            if rest or pipeline > max(1, block_count) or not is_one_copy or data % (asked.expert or 1):
                continue
            if machines > 1 and asked.expert and data != asked.expert:
                continue  # groups inside a machine need no second one
            yield Plan(machines=machines, tensor=tensor, pipeline=pipeline, data=data, expert=asked.expert or 1)


def divides_heads(workload: Workload, ways: int) -> bool:
    """Return whether query heads and key-value heads divide evenly among the GPUs, as vLLM requires of a served LLM.

    With fewer key-value heads than GPUs, each head must be copied to the same number of GPUs.
    """
    generation = workload.generation
    if generation is None:
        return True
    kv_heads = generation.kv_head_count
    return (generation.head_count or ways) % ways == 0 and (kv_heads % ways == 0 or ways % kv_heads == 0)


def _ways(gpu_count: int) -> list[int]:
    """Return the ways to split a model in one machine: `gpu_count`, and the powers of two that divide it."""
    powers = (1 << exponent for exponent in range(1, gpu_count.bit_length()))
    return sorted({gpu_count, *(power for power in powers if gpu_count % power == 0)} - {1})


def members_by_plan(workload: Workload, devices: Sequence[Device], asked: Spreading) -> dict[Plan, list[int]]:
    """Return every plan to compare, with the indices of all devices whose machines can run it."""
    members: dict[Plan, list[int]] = {}
    plans: dict[tuple[int, bool], list[Plan]] = {}  # hundreds of devices have the same key
    for index, device in enumerate(devices):
        key = (device.gpu_count, device.network_bytes_per_s is not None)
        if key not in plans:
            plans[key] = [
                plan
                for machines, used in used_together(key[0], has_network=key[1], asked=asked)
                for plan in plans_of(workload, gpu_count=used, machines=machines, asked=asked)
            ]
        for plan in plans[key]:
            members.setdefault(plan, []).append(index)
    return members


def used_together(gpu_count: int, *, has_network: bool, asked: Spreading) -> Iterator[tuple[int, int]]:
    """Yield numbers of machines, and of GPUs to use on each; several machines use all of theirs."""
    for machines in machine_counts(has_network=has_network, asked=asked):
        for used in gpu_counts(gpu_count, asked=asked):
            if machines == 1 or used == gpu_count:
                yield machines, used


def runs_as_it_is(device: Device, *, asked: Spreading) -> bool:
    """Return whether one device runs the whole step in one pass, and the user requested nothing else."""
    has_network = device.network_bytes_per_s is not None
    return (
        (asked.gpus is None and asked.accumulate == 1 and not asked.checkpoint_activations)
        and gpu_counts(device.gpu_count, asked=asked) == [1]
        and machine_counts(has_network=has_network, asked=asked) == [1]
    )


def gpu_counts(available: int, *, asked: Spreading) -> list[int]:
    """Return the numbers of GPUs per machine to try: powers of two and the maximum; none if there are too few GPUs."""
    return _counts(min(available, asked.max_gpus or available), exactly=asked.gpus)


def too_few_gpus(asked: Spreading, *, most: int) -> UsageError:
    """Return the error for `--gpus` if no machine has more than `most`."""
    return UsageError(
        f"--gpus {asked.gpus}: no device that was asked for has more than {most} in one machine",
        hint="lower --gpus, or let more devices in (--device, --provider and other filters)",
    )


def machine_counts(*, has_network: bool, asked: Spreading) -> list[int]:
    """Return the numbers of machines to try: powers of two and the maximum; none if too few are allowed."""
    return _counts(asked.max_machines if has_network else 1, exactly=asked.machines)


def _counts(most: int, *, exactly: int | None) -> list[int]:
    if exactly is not None:
        return [exactly] if exactly <= most else []
    return sorted({most, *(1 << exponent for exponent in range(most.bit_length()))})
