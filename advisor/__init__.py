"""Which CPU or GPU instance does a PyTorch job for the least money, how sure is that, and why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.answers.break_even import breakeven
    from advisor.answers.explanation import explain
    from advisor.answers.full_report import save_report
    from advisor.answers.memory_fit import memory
    from advisor.answers.observation import observe
    from advisor.api import recommend
    from advisor.records.answer import Recommendation

__version__ = "0.1.0"
__all__ = [
    "AdvisorError", "Recommendation", "__version__", "breakeven", "explain", "memory", "observe", "recommend",
    "save_report",
]  # fmt: skip

_PUBLIC = {
    "Recommendation": "records.answer",
    "breakeven": "answers.break_even",
    "explain": "answers.explanation",
    "memory": "answers.memory_fit",
    "observe": "answers.observation",
    "recommend": "api",
    "save_report": "answers.full_report",
}


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `advise --help` pays for none of them."""
    if name in _PUBLIC:
        return getattr(import_module(f"advisor.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
