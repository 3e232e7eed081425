"""Runs one kind of hostile input many times, each time with a random source that a seed gives again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How one class of attack ended."""

    name: str
    cases: int
    failures: int


@dataclass(slots=True, kw_only=True)
class Attack:
    """One class of hostile input: `count` cases, reproducible from `seed` and the number of the case."""

    name: str
    seed: int
    count: int
    tallies: list[Tally] = field(default_factory=list)

    def each(self, check: Callable[[Random], None], *, count: int | None = None) -> None:
        """Call `check` with one random source for each case; fail at the end, naming every case that raised."""
        cases = self.count if count is None else count
        failed = []
        for case in range(cases):
            try:
                check(Random(f"{self.seed}/{self.name}/{case}"))
            except Exception as error:  # noqa: BLE001 - every way to fail is counted
                failed.append(f"case {case}: {type(error).__name__}: {error}")
        self.tallies.append(Tally(name=self.name, cases=cases, failures=len(failed)))
        assert not failed, f"{len(failed)} of {cases} with --attack-seed {self.seed}:\n" + "\n".join(failed[:20])


def table(tallies: list[Tally]) -> str:
    """The Markdown table of docs/internals/reliability.md, a line for each class."""
    lines = ["| class | cases | failures |", "| --- | --- | --- |"]
    lines += [f"| {tally.name} | {tally.cases:,} | {tally.failures} |" for tally in tallies]
    total = f"| all | {sum(t.cases for t in tallies):,} | {sum(t.failures for t in tallies)} |"
    return "\n".join([*lines, total]) + "\n"
