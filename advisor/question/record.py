"""Defines `Question`, the input of every answer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.store import Stored
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload

TraceAt = Callable[[int], Workload]
"""Traces the model again at another batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything that an answer is computed from. `question_from_source` and `question_from_model` build it."""

    workload: Workload
    """One step of the model; for a served language model with the weights that `options` ask for."""
    options: Options
    """The user's options, with devices by their ids; for a served language model as an engine runs it (`as_served`)."""
    catalog: Catalog
    """Profiles, prices and efficiencies, including those that were calibrated on this machine."""
    machine: Machine | None = None
    """This machine; None where the answer is about offers only."""
    calibrated: Stored = field(default_factory=Stored)
    """The calibrations that `catalog` includes, and the problems met while reading them."""
    measuring: Measuring | None = None
    """How to time the step on this machine; None where nothing is to be timed."""
    trace_at: TraceAt | None = None
    """For dimensions that are not affine in the batch, and where larger batches are padded to longer sequences."""
    trace_fused: Callable[[], Workload] | None = None
    """Traces the model again with fused attention, where its source offers that."""
    trace_chunked: Callable[[], Workload] | None = None
    """Traces a language model to fine-tune again with its logits in chunks, unless they are already."""

    def without_machine(self) -> "Question":
        """Return the question about offers only, at the batch that was traced; calibrations stay in force."""
        rented = tuple(name for name in self.options.device if name != LOCAL)
        options = replace(self.options, measure=False, device=rented)
        return replace(self, options=options, machine=None, measuring=None, trace_at=None)

    def by_cost(self) -> "Question":
        """Return the question with cost as the objective, for the parts of a report that compare costs."""
        return replace(self, options=replace(self.options, objective="cost"))
