"""Tells when the step of a script is over, if several optimizers take turns (GANs, or one for each part of a model)."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.optim import Optimizer

from advisor import units
from advisor.workload.optimizer_step import OptimizerSteps
from advisor.workload.patching import Patch
from advisor.workload.user_error import passes_arguments_on

_MOST_TURNS = 5
"""Steps that each optimizer may take while another is waited for: those of a critic for each of its generator (Arjovsky
et al., Wasserstein GAN, 2017, algorithm 1: n_critic = 5)."""

_TIMES = {1: "once", 2: "twice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A step of one of the optimizers.

    - `optimizer`: number of the optimizer, by its first turn
    - `name`: its class and the number of its parameters
    - `call_count`, `backward_count`: calls of the model and backward passes from the begin of the step to this turn
    """

    optimizer: int
    name: str
    call_count: int
    backward_count: int


class OptimizerTurns:
    """The optimizers of a script, and their turns in its step.

    The step is over once every optimizer has had a turn. Some may have several (the critic of a WGAN). An optimizer
    that holds no other parameters than those with a turn is not waited for. If another takes more than `_MOST_TURNS`
    in the meantime, `is_overdue` is set: the step then ends with the last turn that was an optimizer's first one.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.first_count = 0
        """Turns up to the last one that was an optimizer's first."""
        self._made: WeakSet[Optimizer] = WeakSet()
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._next = 0

    def patches(self) -> Iterator[Patch]:
        """Yield the patch that notes every optimizer when it is made."""
        init = Optimizer.__init__

        @passes_arguments_on
        def noted(optimizer: Any, *args: Any, **settings: Any) -> None:
            init(optimizer, *args, **settings)
            self._made.add(optimizer)

        yield Optimizer, "__init__", noted

    def begin(self) -> None:
        """Forget the optimizers that the script has dropped before its step."""
        if len(self._made) > 1:
            gc.collect()  # an optimizer and its scheduler refer to each other

    def loose_parameters(self, networks: Iterable[nn.Module]) -> list[torch.Tensor]:
        """Return the parameters of all optimizers that none of the networks holds, such as tables of plain tensors."""
        known = {id(parameter) for network in networks for parameter in network.parameters()}
        held = (part for optimizer in self._made for group in optimizer.param_groups for part in group["params"])
        return list({id(part): part for part in held if id(part) not in known}.values())

    def add(self, optimizer: Optimizer, *, call_count: int, backward_count: int) -> bool:
        """Add a turn; return True if it is the optimizer's first one."""
        is_first = optimizer not in self._numbers
        if is_first:
            self._numbers[optimizer] = self._next
            self._next += 1
        self.turns.append(
            Turn(
                optimizer=self._numbers[optimizer],
                name=_name(optimizer),
                call_count=call_count,
                backward_count=backward_count,
            )
        )
        if is_first:
            self.first_count = len(self.turns)
        return is_first

    @property
    def is_overdue(self) -> bool:
        """True if the optimizer of the last turn has had too many while another was waited for."""
        since = self.turns[self.first_count - 1 :]
        return sum(turn.optimizer == since[-1].optimizer for turn in since) > _MOST_TURNS

    def waited_for(self, steps: OptimizerSteps) -> list[str]:
        """Return the names of the optimizers that have had no turn and hold parameters which no other one updates."""
        return sorted(
            _name(optimizer)
            for optimizer in self._made
            if optimizer not in self._numbers
            and any(id(parameter) not in steps.held for parameter in steps.parameters_of(optimizer))
        )


def samples_of(turns: Sequence[Turn], calls: Sequence[tuple[int, bool]]) -> tuple[int, int, int]:
    """Return the samples of a step, the passes that take them, and the optimizer steps among which these are divided.

    Each of `calls` has a number of samples, and True if another network of the step has computed them (the images of a
    generator): if several optimizers take turns, these are no data. All optimizers of a step get the same data, some
    in several turns (a critic), so that the step has the samples of the one with the most.
    """
    is_alone = len({turn.optimizer for turn in turns}) == 1
    found: dict[int, list[tuple[int, int]]] = {}
    start = start_backward = 0
    for turn in turns:
        own = [samples for samples, is_made in calls[start : turn.call_count] if is_alone or not is_made]
        if own:
            found.setdefault(turn.optimizer, []).append(_passes(own, turn.backward_count - start_backward))
        start, start_backward = turn.call_count, turn.backward_count
    if not found:
        return max((samples for samples, _ in calls), default=1), 1, 1
    most = max(found.values(), key=lambda parts: sum(samples for samples, _ in parts))
    return sum(samples for samples, _ in most), sum(passes for _, passes in most), len(most)


def turn_notes(turns: Sequence[Turn], *, waited_for: Sequence[str]) -> Iterator[str]:
    """Yield what was assumed about several optimizers; those in `waited_for` had no turn in the step."""
    counts = Counter((turn.optimizer, turn.name) for turn in turns)
    if len(counts) > 1:
        taken = [f"{name} {_TIMES.get(count, f'{count} times')}" for (_, name), count in counts.items()]
        yield f"{len(counts)} optimizers step in turn ({', '.join(taken)}), assumed to be so in every step"
    if waited_for:
        yield (
            f"not counted, because it did not step in this step: {' and '.join(waited_for)}; steps in which it does "
            "take longer"
        )


def _name(optimizer: Optimizer) -> str:
    count = sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])
    return f"{type(optimizer).__name__} of {units.format_count(count)} parameters"


def _passes(batches: Sequence[int], backward_count: int) -> tuple[int, int]:
    """Return the samples and passes of one optimizer step: with several backwards, gradients are accumulated.

    A pass may call the model several times, with two views of the same samples, or once with a sample to try it.
    """
    passes = max(1, min(backward_count, len(batches)))
    calls = len(batches) // passes
    tried = len(batches) - passes * calls
    starts = range(tried, len(batches), calls)
    return sum(max(batches[start : start + calls]) for start in starts), passes
