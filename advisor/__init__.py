"""Which CPU or GPU instance does a PyTorch job for the least money, how sure is that, and why."""

from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.explaining import explain
    from advisor.pipeline import recommend
    from advisor.records.answer import Recommendation

__version__ = "0.1.0"
__all__ = ["AdvisorError", "Recommendation", "__version__", "explain", "recommend"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `advise --help` pays for none of them."""
    if name == "recommend":
        from advisor.pipeline import recommend

        return recommend
    if name == "explain":
        from advisor.explaining import explain

        return explain
    if name == "Recommendation":
        from advisor.records.answer import Recommendation

        return Recommendation
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
