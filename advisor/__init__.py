"""Which CPU or GPU instance does a PyTorch job for the least money, how sure is that, and why."""

from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.breaking_even import breakeven
    from advisor.explaining import explain
    from advisor.observing import observe
    from advisor.pipeline import recommend
    from advisor.records.answer import Recommendation
    from advisor.reporting import save_report
    from advisor.sizing import memory

__version__ = "0.1.0"
__all__ = [
    "AdvisorError", "Recommendation", "__version__", "breakeven", "explain", "memory", "observe", "recommend",
    "save_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `advise --help` pays for none of them."""
    if name == "recommend":
        from advisor.pipeline import recommend

        return recommend
    if name == "breakeven":
        from advisor.breaking_even import breakeven

        return breakeven
    if name == "explain":
        from advisor.explaining import explain

        return explain
    if name == "memory":
        from advisor.sizing import memory

        return memory
    if name == "observe":
        from advisor.observing import observe

        return observe
    if name == "save_report":
        from advisor.reporting import save_report

        return save_report
    if name == "Recommendation":
        from advisor.records.answer import Recommendation

        return Recommendation
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
