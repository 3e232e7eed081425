"""Divides the calls of an optimizer's step among the parameters that they update, and counts them for all."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch

from advisor.ops.registry import Cost
from advisor.ops.sparse import is_on_sparse
from advisor.workload.fusion import TracedCall
from advisor.workload.recorder import cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A parameter that the step was run on.

    - `count`: how many parameters it represents, itself included
    - `storages`: numbers of its own storage and of those of its gradient and state
    - `state_bytes`: of its state
    """

    parameter: torch.Tensor
    gradient: torch.Tensor
    count: int
    storages: Collection[int]
    state_bytes: int

    @property
    def element_count(self) -> int:
        """Return the elements of all parameters that it represents."""
        return self.count * self.parameter.numel()


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppingCall:
    """A call of the step that was run.

    - `owners`: indices of the parameters that it is made for
    - `count`: how often the step on all parameters makes it
    - `cost`: FLOP and bytes of all these
    """

    call: TracedCall
    owners: frozenset[int]
    count: int
    cost: Cost


def stepping_calls(calls: Sequence[TracedCall], stepped: Sequence[Stepped]) -> Iterator[SteppingCall]:
    """Yield the calls with their count and cost in the step on all parameters.

    A call on one parameter is made for each that the parameter represents. A call on several, such as a fused kernel
    or a global norm, is made once, and its work grows with their elements.
    """
    for call, owners in zip(calls, _owners(calls, [one.storages for one in stepped]), strict=True):
        own = [stepped[index] for index in owners]
        ratio = sum(one.element_count for one in own) / max(1, sum(one.parameter.numel() for one in own))
        cost = cost_of(call)
        yield SteppingCall(
            call=call,
            owners=owners,
            count=own[0].count if len(own) == 1 else 1,
            cost=Cost(
                flops=ratio * cost.flops, read_bytes=ratio * cost.read_bytes, write_bytes=ratio * cost.write_bytes
            ),
        )


def works_on_elements(call: TracedCall, values: torch.Tensor) -> bool:
    """Return whether a call works on the elements of a sparse gradient with these values, not on the whole tensor."""
    shapes = (described[0] for described in (*call.inputs, *call.outputs))
    return is_on_sparse(call.op) or any(shape == tuple(values.shape) for shape in shapes)


def _owners(calls: Sequence[TracedCall], storages: Sequence[Collection[int]]) -> Iterator[frozenset[int]]:
    """Yield the parameters that each call works for, as indices of `storages`, which are those of each parameter.

    A result belongs to the parameters of its operands. If a parameter's update reads a value that belongs to several
    parameters, such as a global norm, it still belongs to that one: the operand with fewer parameters counts. A call
    without any such operand belongs to the same parameters as the call before it.
    """
    owners_of = {number: frozenset({index}) for index, own in enumerate(storages) for number in own}
    owners = frozenset(range(len(storages)))
    for call in calls:
        known = [owners_of[number] for number in call.storages if number in owners_of]
        owners = frozenset[int]().union(*(one for one in known if not any(other < one for other in known))) or owners
        for number in call.storages[len(call.inputs) :]:
            owners_of.setdefault(number, owners)
        yield owners
