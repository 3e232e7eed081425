"""Which CPU or GPU instance does a PyTorch job for the least money, how sure is that, and why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.api import breakeven, explain, fits, memory, observe, recommend, save_report
    from advisor.callbacks import LightningCallback, TrainerCallback
    from advisor.records.answer import Recommendation

__version__ = "0.1.0"
__all__ = [
    "AdvisorError", "LightningCallback", "Recommendation", "TrainerCallback", "__version__", "breakeven", "explain",
    "fits", "memory", "observe", "recommend", "save_report",
]  # fmt: skip

_HOMES = {
    "Recommendation": "advisor.records.answer",
    "LightningCallback": "advisor.callbacks",
    "TrainerCallback": "advisor.callbacks",
}
"""The modules of the public names that are not functions of `advisor.api`."""


def __dir__() -> list[str]:
    """List the public names, although they are imported on first use."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that `advise --help` does not pay for them."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "advisor.api")), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
