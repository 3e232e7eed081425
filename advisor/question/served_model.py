"""Checks the options of served language models, and settles how an engine runs them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError, LoadError, UsageError
from advisor.predict.batches import batch_candidates
from advisor.predict.narrow_kernels import KernelKind, formats_of
from advisor.predict.step_memory import scaled
from advisor.predict.weights import with_kv_cache, with_weights
from advisor.records.engine import Engine
from advisor.records.flag_values import flag_name, is_given, is_workload_file
from advisor.records.options import Options
from advisor.records.workload import Workload

if TYPE_CHECKING:
    from torch import nn

_TOKENS = ("prompt_tokens", "output_tokens")
_SERVING_FIELDS = tuple(field.name for field in fields(Options) if field.metadata.get("is_of_serving"))
_SETTLED = ("input", "attention", "compile", "layout", "measure")
"""Options that a served language model does not take: its engine decides."""


def check_generation(source: str, options: Options, *, run: bool = False) -> None:
    """Raise `UsageError` if the options of a served language model contradict each other or the source."""
    given = [name for name in (*_TOKENS, *_SERVING_FIELDS) if is_given(options, name)]
    if not given or (is_workload_file(source) and not set(given) & set(_TOKENS)):
        return
    if is_workload_file(source):
        raise UsageError(
            f"{flag_name(given[0])}: {source} is a saved workload, whose prompt and output lengths are fixed",
            hint="save it again with the lengths that you mean",
        )
    missing = [flag_name(name) for name in _TOKENS if name not in given]
    if missing:
        raise UsageError(
            f"{flag_name(given[0])} plans LLM serving, which also needs {' and '.join(missing)}",
            hint="fine-tune with --finetune qlora (4-bit weights), lora or full"
            if options.mode == "training"
            else "add --prompt-tokens 1024 --output-tokens 256, or what your requests have",
        )
    if not source.startswith("hf:") or run:
        raise UsageError(
            f"--prompt-tokens: {source} is not an hf: language model, so prompt and output cannot be told apart",
            hint="name its config: hf:ID_OR_CONFIG",
        )
    if options.mode == "training":
        raise UsageError("--prompt-tokens: a service cannot run training", hint="omit --mode training")
    settled = next((name for name in _SETTLED if is_given(options, name)), None)
    if settled is not None:
        raise UsageError(
            f"{flag_name(settled)} has no effect in LLM serving: the inference engine decides it",
            hint=f"leave {flag_name(settled)} out",
        )
    if options.batch and options.concurrency:
        raise UsageError("--batch and --concurrency both say how many requests are in flight", hint="keep one of them")


def as_served(workload: Workload, options: Options, *, engines: Mapping[str, Engine]) -> tuple[Workload, Options]:
    """Return a served language model with the requested weights, and the options as an engine runs it.

    Engines fuse kernels, hold the whole model in half precision, and keep `--concurrency` requests in flight. Any other
    workload is returned unchanged. Raises `UsageError` if the options do not suit the workload.
    """
    generation = workload.generation
    if generation is None:
        given = next((name for name in _SERVING_FIELDS if is_given(options, name)), None)
        if given is not None:
            raise UsageError(
                f"{flag_name(given)} applies only to LLM serving: {workload.name} was traced as one step",
                hint="trace it with --prompt-tokens and --output-tokens",
            )
        return workload, options
    is_tf32 = options.precision.endswith("tf32")
    if is_tf32 or options.precision.startswith("amp-"):
        whole = "fp32" if is_tf32 else options.precision.removeprefix("amp-")
        raise UsageError(
            f"--precision {options.precision}: engines hold the whole model in one precision, without autocast or TF32",
            hint=f"write --precision {whole}, or leave it out",
        )
    for flag, what, asked, saved in (
        ("--weights", "weights", options.weights, generation.weights),
        ("--kv-cache", "a KV cache", options.kv_cache, generation.kv_cache),
    ):
        if asked != "auto" and saved not in ("auto", asked):
            raise UsageError(
                f"{flag} {asked}: {workload.name} was saved with {what} in {saved}",
                hint=f"save it again without {flag}",
            )
    engine = engines.get(options.engine)
    if engine is None:
        raise UsageError(
            f"--engine {options.engine}: no such engine",
            hint=f"the engines are {', '.join(sorted(engines))}",
        )
    _check_formats(options, engine, engines=engines)
    cached_tokens = options.cached_prompt_tokens or 0
    if cached_tokens >= generation.decoder_tokens:
        raise UsageError(
            f"--cached-prompt-tokens {cached_tokens}: the decoder reads {generation.decoder_tokens} tokens of a prompt",
            hint="write fewer: an engine computes at least the last of them",
        )
    is_drafted = [one is not None for one in (options.draft_tokens, options.acceptance_rate)]
    if any([*is_drafted, options.draft_cost is not None]) and not all(is_drafted):
        raise UsageError(
            "speculative decoding needs both --draft-tokens and --acceptance-rate",
            hint="add --draft-tokens 4 --acceptance-rate 0.7, or what your engine's metrics say",
        )
    if options.concurrency:
        batch_candidates(options.concurrency, mode=workload.mode, source_batch=workload.batch, flag="--concurrency")
    kept = generation.decoder_tokens + generation.output_tokens
    reserved = engine.reserved_tokens(kept)
    ratio = generation.cache_bytes(reserved) / generation.cache_bytes(kept) if generation.cached else reserved / kept
    workload = replace(
        workload,
        memory=tuple(replace(line, kv_cache=scaled(line.kv_cache, ratio)) for line in workload.memory)
        if generation.engine is None
        else workload.memory,
    )
    served = replace(
        generation,
        engine=engine,
        truncates_sampling=options.sampling == "truncated",
        prefix_cached_tokens=cached_tokens,
        draft_tokens=options.draft_tokens or 0,
        acceptance_ratio=options.acceptance_rate or 0.0,
        draft_cost_ratio=options.draft_cost or 0.0,
    )
    workload = with_kv_cache(replace(workload, generation=served), options.kv_cache)
    weights, published = options.weights, generation.published_weights
    if weights == generation.weights == "auto" and published in formats_of(engine, "weight_kernels"):
        weights = published
    stored = with_weights(workload, weights)
    if options.weights not in ("auto", "bf16", generation.weights) and stored.rows == workload.rows:
        raise UsageError(
            f"--weights {weights}: {workload.name} has no weights that are stored in it; mxfp4 stores experts alone",
            hint="write --weights int4, or nvfp4",
        )
    return stored, replace(
        options,
        batch=options.concurrency or options.batch,
        concurrency="",
        compile="compile",
        precision="half" if options.precision == "auto" else options.precision,
    )


def _check_formats(options: Options, engine: Engine, *, engines: Mapping[str, Engine]) -> None:
    """Raise `UsageError` if the engine has no kernels for the formats that are asked for."""
    asked: tuple[tuple[str, str, KernelKind], ...] = (
        ("--weights", options.weights, "weight_kernels"),
        ("--kv-cache", options.kv_cache, "cache_kernels"),
    )
    for flag, stored_in, kind in asked:
        known = formats_of(engine, kind)
        if stored_in not in ("auto", "bf16", *known):
            others = [one.name for one in engines.values() if stored_in in formats_of(one, kind)]
            raise UsageError(
                f"{flag} {stored_in}: {engine.name} has no kernels for it, only for {', '.join(known)}",
                hint=f"write --engine {others[0]}" if others else f"leave {flag} out",
            )


def asks_for_tokens(options: Options) -> bool:
    """Return whether `--prompt-tokens` or `--output-tokens` is given."""
    return any(is_given(options, name) for name in _TOKENS)


@contextmanager
def config_source(model: "nn.Module", *, flag: str) -> Iterator[str]:
    """Give the config of a transformers model as a source, from which the model of `flag` is built.

    Raises `LoadError` for any other model. Errors raised inside name the model, not the temporary file.
    """
    kind, to_json = type(model).__name__, getattr(getattr(model, "config", None), "to_json_string", None)
    if to_json is None:
        raise LoadError(
            f"{flag}: {kind} has no config of transformers, from which the model is built anew",
            hint=f"leave {flag} out, and pass example_inputs, to rank the model as it is",
        )
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{kind}.json"
        file.write_text(json.dumps({**json.loads(to_json(use_diff=False)), "architectures": [kind]}), encoding="utf-8")
        try:
            yield f"hf:{file}"
        except AdvisorError as error:
            error.message = error.message.replace(f"hf:{file}", kind).replace(str(file), kind)
            raise
