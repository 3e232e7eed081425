"""Defines `Question`, the input of every answer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from advisor.calibrate.measured_beside import MeasuredHere, Measuring
from advisor.calibrate.store import Stored
from advisor.errors import UsageError
from advisor.predict.anchor import Correct, uncorrected
from advisor.records.flag_values import takes_own_batch
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
    measured: MeasuredHere | None = None
    """The steps timed on this machine; None if none were yet."""
    correct: Correct = uncorrected
    """Takes timed steps into account in every prediction of the question."""
    trace_at: TraceAt | None = None
    """For dimensions that are not affine in the batch, and where larger batches are padded to longer sequences."""
    trace_fused: TraceAt | None = None
    """Traces the model again with fused attention, where its source offers that."""
    trace_chunked: Callable[[], Workload] | None = None
    """Traces a language model to fine-tune again with its logits in chunks, unless they are already."""

    @property
    def holds_at_any_batch(self) -> bool:
        """Return whether one trace applies to all batch sizes: it is affine in them, and there are no `--lengths`."""
        return self.workload.batch_is_affine and self.options.lengths is None

    def at_batch(self, batch: int) -> Workload:
        """Return the step at a global batch size, traced again if the first trace does not apply to it.

        Raises `UsageError` for a batch size that the model cannot have.
        """
        workload, options = self.workload, self.options
        if self.holds_at_any_batch or takes_own_batch(workload, options) or batch == workload.batch:
            return workload
        traced = self.trace_at(batch) if self.trace_at else workload
        if traced.batch != batch:
            raise other_batch(workload, batch)
        return traced

    def without_machine(self) -> "Question":
        """Return the question about offers only; calibrations and timed steps stay in force."""
        rented = tuple(name for name in self.options.device if name != LOCAL)
        options = replace(self.options, measure=False, device=rented)
        return replace(self, options=options, machine=None, measuring=None)

    def by_cost(self) -> "Question":
        """Return the question with cost as the objective, for the parts of a report that compare costs."""
        return replace(self, options=replace(self.options, objective="cost"))


def other_batch(workload: Workload, batch: int) -> UsageError:
    """Return the error for a batch size that the workload cannot have."""
    return UsageError(
        f"{workload.name} can be predicted only at batch {workload.batch}, not at {batch}: its dimensions do not grow "
        "linearly with the batch, or its batch is fixed",
        hint=f"leave --batch out, or make the source's own batch {batch}",
    )
