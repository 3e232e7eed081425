"""Finds the kinds of model sources, one module each, and loads a source by the module of its kind."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import LoadError
from advisor.records.generation import Generation
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec

if TYPE_CHECKING:
    from advisor.workload.loaded import LoadedModel
    from advisor.workload.sources.language_model import LanguageModel

_SOURCE_LITERAL = re.compile(r"^SOURCE = (\{.*?\})$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A kind of source: `SCHEME:REFERENCE`, or a file with a suffix.

    Its module states the fields, except `module`, as a dict of literals called `SOURCE`. Its `load(reference, mode=...,
    specs=..., attention=...)` takes the source without its scheme and returns a `LoadedModel`; it raises `LoadError` if
    that fails, and errors of the user's code pass through.
    """

    module: str
    usage: str
    """How the user writes such a source."""
    scheme: str = ""
    suffix: str = ""
    package: str = ""
    """The optional package that it needs."""
    is_path: bool = False
    """The source names a file or folder, and so depends on the working directory."""
    takes_tokens: bool = False
    """Its `load` takes the most tokens of a sample."""
    has_attention_forms: bool = False
    """Its models implement attention in several ways, and `load` builds the requested one."""
    is_counted_only: bool = False
    """Its operators are counted; the model itself cannot be run and timed by torch."""


@cache
def source_kinds() -> tuple[SourceKind, ...]:
    """Return all kinds, files first. Reads what their modules state, because importing them would import torch."""
    kinds = [
        SourceKind(module=file.stem, **ast.literal_eval(stated[1]))
        for folder in __path__
        for file in Path(folder).glob("*.py")
        if (stated := _SOURCE_LITERAL.search(file.read_text(encoding="utf-8")))
    ]
    return tuple(sorted(kinds, key=lambda kind: (kind.scheme, kind.usage)))


def kind_of(source: str) -> SourceKind | None:
    """Return the kind of a source, by its scheme or else by the suffix of its file; None if there is none."""
    scheme, colon, _ = source.partition(":")
    suffix = Path(source.partition("::")[0]).suffix
    by_scheme = (kind for kind in source_kinds() if colon and scheme and kind.scheme == scheme)
    by_suffix = (kind for kind in source_kinds() if suffix and kind.suffix == suffix)
    return next(by_scheme, None) or next(by_suffix, None)


def has_scheme(source: str) -> bool:
    """Return True for `SCHEME:REFERENCE`, which runs no code of the user's own."""
    kind = kind_of(source)
    return kind is not None and bool(kind.scheme)


def usages() -> str:
    """Return how each kind of source is written, as a list for messages."""
    by_kind = ", ".join(kind.usage for kind in source_kinds())
    return f"{by_kind}, SCRIPT.py --run, a saved FILE.json or a trainer's FILE.yaml"


def load(
    source: str,
    *,
    mode: Mode,
    specs: Sequence[InputSpec],
    attention: Attention = "auto",
    tokens: int | None = None,
) -> "LoadedModel":
    """Load the model and inputs that `source` names; this imports torch, and runs the code of a file.

    `tokens` is the most tokens of a sample, for kinds whose inputs are text by default.
    """
    kind = kind_of(source)
    if kind is None:
        raise LoadError(f"{source} is not a model", hint=f"a model is {usages()}")
    module = import_module(f"{__name__}.{kind.module}")
    how = {"tokens": tokens} if tokens is not None and kind.takes_tokens else {}
    reference = source.removeprefix(f"{kind.scheme}:")
    loaded: LoadedModel = module.load(reference, mode=mode, specs=specs, attention=attention, **how)
    return loaded


def load_language_model(source: str, generation: Generation) -> "LanguageModel":
    """Load `hf:ID_OR_CONFIG` as a model that generates text as `generation` describes."""
    from advisor.workload.sources.huggingface import quiet_transformers

    quiet_transformers()
    from advisor.workload.sources import language_model  # needs transformers

    return language_model.load(source.partition(":")[2], generation)
