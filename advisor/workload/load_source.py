"""Loads the model and inputs that a source names. Runs only in the child process, because sources are code."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from advisor.records.generation import Generation
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.loaded import LoadedModel

if TYPE_CHECKING:
    from advisor.workload.sources.language_model import LanguageModel

_SCHEMES = {"torchvision": "torchvision", "timm": "timm", "hf": "huggingface"}


class Source(Protocol):
    """The interface of the modules in `sources/` that a source can name."""

    def load(
        self, reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto"
    ) -> LoadedModel:
        """Find and build the model; raise `LoadError` if that fails. Errors of the user's code pass through.

        A source that can build several forms of attention builds the requested one; the others ignore `attention`.
        """


def load(source: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Load `FILE.py[::NAME]`, `FILE.pt2`, `torchvision:NAME`, `timm:NAME[@SIZE]` or `hf:CONFIG_DIR_OR_JSON`."""
    scheme, colon, reference = source.partition(":")
    if colon and scheme in _SCHEMES:
        kind = _SCHEMES[scheme]
    else:
        kind, reference = ("exported" if source.endswith(".pt2") else "python_file"), source
    module = cast(Source, import_module(f"advisor.workload.sources.{kind}"))
    return module.load(reference, mode=mode, specs=specs, attention=attention)


def load_language_model(source: str, generation: Generation) -> "LanguageModel":
    """Load `hf:CONFIG_DIR_OR_JSON` as a model that generates text as `generation` describes."""
    from advisor.workload.sources.huggingface import offline_transformers

    offline_transformers()
    from advisor.workload.sources import language_model  # needs transformers

    return language_model.load(source.partition(":")[2], generation)
