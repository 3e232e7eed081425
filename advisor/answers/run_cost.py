"""Says what a training run costs while it runs, and what the rest of it would cost on the best instance on offer."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from typing import TYPE_CHECKING, Any

from advisor import units
from advisor.answers.observation import Observed
from advisor.answers.price_list import show_prices
from advisor.catalog.find import exchange_rate_of
from advisor.cost.job import SIZES, price_kind_of
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.errors import AdvisorError, UsageError
from advisor.question.from_source import catalog_of
from advisor.question.option_values import options_of
from advisor.records.answer import Quote, Recommendation
from advisor.records.displayed import Displayed
from advisor.records.flag_values import naming
from advisor.records.options import Options
from advisor.records.price import PricedOffer
from advisor.report.amounts import money_interval, money_text
from advisor.report.content import Block, Paragraph
from advisor.report.quote_columns import device_label, instance_label
from advisor.report.sentence import verdict
from advisor.workload.user_error import explain

if TYPE_CHECKING:
    from torch import nn

    from advisor.calibrate.observer import Observer

_ADVISE_AFTER = 20
"""Steps that are observed; enough for a median, and soon enough to move a run."""
_STEADY_AFTER = 2
"""First steps, which do not tell how long the others take: they allocate memory, choose kernels and compile."""


class RunCost(Displayed):
    """The time and the cost of a training run, which `begin`, `step_ended` and `end` follow.

    After 20 steps it is said what the other steps would cost on the best instance on offer: `recommendation` holds that
    answer. Until then hooks observe the model's steps; from then on a step adds nothing but a comparison of counts.
    """

    def __init__(
        self,
        *,
        instance: str = "",
        usd_per_hour: float | None = None,
        loss: Any = None,
        train_step: Any = None,
        say: Callable[[str], Any] = print,
        **flags: Any,
    ) -> None:
        """Take the price of the machines of the run: that of one `instance`, or the dollars per hour of all of them.

        An instance is named as `advise prices show` takes it, and has the price of its cheapest region. `loss` and
        `train_step` are as `observe` takes them; `flags` limit the offers, as those of `recommend`. `say` takes every
        sentence. Raises `UsageError` for an unknown instance and other values that cannot be used.
        """
        sized = ("measure", "mode", *SIZES)  # the run itself says so
        options = options_of(flags, function=type(self).__name__, without=sized)
        if instance and usd_per_hour is not None:
            raise UsageError("instance and usd_per_hour both give the price of the run", hint="keep one of them")
        self._offer = _cheapest(instance, options) if instance else None
        self.usd_per_hour = self._offer.price.usd_per_hour if self._offer else None
        if usd_per_hour is not None:
            self.usd_per_hour = naming("usd_per_hour", units.parse_positive)(str(usd_per_hour))
        self._rate = exchange_rate_of(catalog_of(options), options.currency) if "currency" in flags else None
        self.recommendation: Recommendation | None = None
        self._how: dict[str, Any] = {"loss": loss, "train_step": train_step, **flags}
        self._say = say
        self._observers: Sequence[Observer] = ()
        self._hooks = ExitStack()
        self._began_s: float | None = None

    def begin(
        self,
        modules: Sequence["nn.Module"],
        *,
        step: int,
        step_count: int | None,
        process_count: int = 1,
        worker_count: int | None = None,
        is_main: bool = True,
        not_observed: str = "",
    ) -> None:
        """Start the clock at `step` of `step_count`, or of a number that is not known.

        The first of `modules` that takes the steps is observed, in the main one of `process_count` processes, unless
        `not_observed` says why it cannot be. `worker_count` processes load the data; None if that is not known.
        """
        from advisor.calibrate.observer import Observer

        self.end()
        self.recommendation, self._advice, self._is_advised = None, "", False
        self._first_step, self.step, self._step_count = step, step, step_count
        self._process_count, self._worker_count, self._is_main = process_count, worker_count, is_main
        self._not_observed = not_observed
        self._steady: tuple[int, float] | None = None
        self._advised_s = 0.0
        self._end_s: float | None = None
        self._began_s = time.perf_counter()
        if is_main and not not_observed:
            self._observers = [Observer(module) for module in modules]
            for observer in self._observers:
                self._hooks.enter_context(observer.following())

    def step_ended(self, step: int) -> None:
        """Count the steps up to `step`; after the first 20, compute the advice, which takes some seconds once."""
        self.step, done = step, step - self._first_step
        if self._is_advised:
            return
        if self._steady is None and done >= _STEADY_AFTER:
            self._steady = (step, time.perf_counter())
        if done >= _ADVISE_AFTER:  # not always at it: Lightning counts the steps of every optimizer
            self._is_advised = True
            self._advise()

    def end(self) -> None:
        """Stop the clock, remove the hooks and say what the run cost."""
        self._stop_observing()
        if self._began_s is not None and self._end_s is None:
            self._end_s = time.perf_counter()
            if self._is_main and self.step > self._first_step:
                self._say(self._spent_text())

    def figures(self) -> dict[str, float]:
        """Return the seconds and dollars spent and remaining, as far as they are known, under the names of a log."""
        if self._began_s is None:
            return {}
        spent_s, left_s = self.spent_s, self.remaining_s
        found = {"seconds_spent": spent_s, "seconds_remaining": left_s}
        found |= {"usd_spent": self._usd(spent_s), "usd_remaining": self._usd(left_s)}
        return {f"advisor/{name}": value for name, value in found.items() if value is not None}

    @property
    def spent_s(self) -> float:
        """Return the seconds since the run began, or that it took."""
        if self._began_s is None:
            return 0.0
        return (time.perf_counter() if self._end_s is None else self._end_s) - self._began_s

    @property
    def remaining_s(self) -> float | None:
        """Return the seconds that the other steps will take, if they take as long as the steps so far.

        These include everything between two steps, such as evaluations. None if the number of steps is not known, and
        during the first steps.
        """
        if self._steady is None or self._step_count is None or self.step == self._steady[0]:
            return None
        if self._end_s is not None:
            return 0.0
        first_step, first_s = self._steady
        step_s = (time.perf_counter() - first_s - self._advised_s) / (self.step - first_step)
        return step_s * max(0, self._step_count - self.step)

    def _usd(self, seconds: float | None) -> float | None:
        if seconds is None or self.usd_per_hour is None:
            return None
        return seconds / SECONDS_PER_HOUR * self.usd_per_hour

    def _stop_observing(self) -> None:
        self._hooks.close()
        self._observers = ()  # they hold a batch of inputs

    def _advise(self) -> None:
        """Compute and say what the other steps would cost elsewhere. Whatever fails, the training goes on."""
        here_s, began_s = self.remaining_s, time.perf_counter()
        self._hooks.close()
        try:
            self._advice = self._advice_text(here_s) if here_s and self._is_main else ""
        except AdvisorError as error:
            self._advice = f"No advice: {error.message}" + (f"; {error.hint}" if error.hint else "")
        except Exception as error:  # noqa: BLE001 - a failed advice, ours or the model's fault, must not end a training
            self._advice = explain(error, what="No advice").message
        self._stop_observing()
        if self._advice:
            self._say(self._advice)
        self._advised_s = time.perf_counter() - began_s

    def _advice_text(self, here_s: float) -> str:
        if self._not_observed:
            raise UsageError(self._not_observed)
        observed = Observed(_observer_of(self._observers), worker_count=self._worker_count)
        left = (self._step_count or 0) - self.step
        samples = left * observed.timing.batch * self._process_count
        answer = observed.recommend(**{"no_calibrate": True, **self._how, "samples": samples, "real_step": False})
        self.recommendation = answer
        here_usd, best = self._usd(here_s), answer.best
        cost = "" if here_usd is None else f" and cost {units.format_money(here_usd, rate=self._rate)}"
        here = f"The other {left:,} steps take {units.format_duration(here_s)}{cost} here"
        if best is None:
            return f"{here}. {verdict(answer)}"
        there = (
            f"would cost {money_interval(best.job_usd, rate=self._rate)} (90 % interval) in "
            f"{units.format_duration(best.job_s.mid)} on {best.provider} {instance_label(best)} ({device_label(best)})"
        )
        return f"{here}, and {there}{self._compared(best, here_usd)}."

    def _compared(self, best: Quote, here_usd: float | None) -> str:
        offer = None if self._offer is None else self._offer.offer
        if offer is not None and (best.provider, best.instance) == (offer.provider, offer.instance):
            return ", the instance of this run"
        if here_usd is None:
            return ""
        if best.job_usd.low <= here_usd <= best.job_usd.high:
            return ": too close to call"
        if here_usd < best.job_usd.low:
            return ": stay here"
        return f": {units.format_ratio(1 - best.job_usd.mid / here_usd)} less"

    def _content(self) -> Iterator[Block]:
        if self._began_s is None:
            yield Paragraph(title="The training has not begun.")
            return
        yield Paragraph(title=self._spent_text(), sentences=(self._advice,) if self._advice else ())

    def _spent_text(self) -> str:
        """Return the time and money spent and remaining, in a sentence."""
        money = money_text(self._rate)
        done = self.step - self._first_step
        usd, left_s = self._usd(self.spent_s), self.remaining_s
        cost = "" if usd is None else f" and cost {money(usd)}"
        hourly = money_text(self._rate, digits=3)
        rate = "" if self.usd_per_hour is None else f" at {hourly(self.usd_per_hour)} per hour"
        named = "" if self._offer is None else f" ({self._offer.offer.id})"
        text = f"{done:,} step{'' if done == 1 else 's'} took {units.format_duration(self.spent_s)}{cost}{rate}{named}"
        if not left_s:
            return f"{text}."
        left_usd = self._usd(left_s)
        more = "" if left_usd is None else f" and {money(left_usd)}"
        return f"{text}; {units.format_duration(left_s)}{more} to go."


def _cheapest(instance: str, options: Options) -> PricedOffer:
    """Return the instance in its cheapest region, at the kind of price that the options ask for."""
    found = show_prices(catalog_of(options), instance, options, today=date.today())
    kinds = (price_kind_of(options), "owned")
    priced = [one for one in found if one.price.kind in kinds]
    if not priced:
        raise UsageError(f"instance: {instance} has no {options.price} price", hint="give usd_per_hour instead")
    return min(priced, key=lambda one: one.price.usd_per_hour)


def _observer_of(observers: Sequence["Observer"]) -> "Observer":
    """Return the observer of the whole model, the first, if its steps call it, else of the only part that they call."""
    whole, *parts = (one for one in observers if one is observers[0] or any(True for _ in one.model.parameters()))
    called = [one for one in (whole, *parts) if one.run is not None and one.run.has_gradients]
    if whole in called or len(called) == 1:
        return called[0]
    raise UsageError(
        f"the step calls {len(called)} submodules of {type(whole.model).__name__} instead of the module itself",
        hint="let it call the module itself, or one part that holds all layers",
    )
