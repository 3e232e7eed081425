"""Loads `FILE.onnx` for inference: its operators are counted as torch's; no weights are needed and nothing is run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from advisor.errors import LoadError
from advisor.files.regular_file import read_regular_file
from advisor.records.sample_words import ASSUMED_BATCH, DEFAULT_BATCH
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.sources.installed import require

SOURCE = {
    "usage": "FILE.onnx",
    "suffix": ".onnx",
    "package": "onnx",
    "is_path": True,
    "is_counted_only": True,
}
_MOST_BYTES = 2 * 2**30
"""Protobuf's limit; larger models keep their weights in files of their own, which are not read."""
_NOTES = ("ONNX: operators are counted one by one, as torch runs them; a runtime that fuses them is faster",)
_PACKED_NOTE = "weights of less than a byte are counted as one byte"

_Dims = list[int | str]
"""The sizes of an input: numbers, or the names of those that the file leaves open ("" if it has no name)."""


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Load an ONNX graph; the batch is the first dimension of its first input, fixed unless the file leaves it open.

    `specs` give the sizes of all other dimensions that the file leaves open. Raises `LoadError` for training, and for
    sizes that are missing or contradict the file.
    """
    if mode == "training":
        raise LoadError(
            f"{reference}: an ONNX file is a model for inference",
            hint="name the source of the model for --mode training",
        )
    onnx = require("onnx")
    from google.protobuf.message import DecodeError

    from advisor.workload.onnx_graph import GraphModule, dtype_of, has_packed

    try:
        model = onnx.load_model_from_string(read_regular_file(Path(reference), most_bytes=_MOST_BYTES))
    except OSError as error:
        raise LoadError(f"{reference}: {error.strerror}", hint="name a file that torch.onnx.export wrote") from None
    except DecodeError as error:
        raise LoadError(f"{reference} is not an ONNX file: {error}", hint="export the model again") from None
    if not model.graph.node:  # an empty file is a message without fields
        raise LoadError(f"{reference}: its graph has no operators", hint="export the model again")
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    module = GraphModule(model)
    inputs = {one.name: one.type.tensor_type for one in model.graph.input if one.name in module.input_names}
    dims: dict[str, _Dims] = {
        name: [dim.dim_value if dim.dim_value > 0 else dim.dim_param for dim in described.shape.dim]
        for name, described in inputs.items()
    }
    dtypes = {name: dtype_of(described.elem_type) for name, described in inputs.items()}
    if not any(dims.values()):
        raise LoadError(f"{reference}: no input has a batch dimension", hint="export the model with its batch as one")
    leading = next(sizes[0] for sizes in dims.values() if sizes)
    is_fixed = isinstance(leading, int)
    fixed = int(leading) if is_fixed else DEFAULT_BATCH
    known = _sizes(dims, dtypes, specs, batch=leading, reference=reference)

    def make_inputs(batch: int) -> Inputs:
        if is_fixed and batch != fixed:
            raise LoadError(
                f"{reference}: its batch is fixed at {fixed}, not {batch}",
                hint="export with dynamic_axes={'INPUT': {0: 'batch'}}",
            )
        shapes = {name: [batch if size is None else size for size in sizes] for name, sizes in known.items()}
        return tuple(torch.zeros(shape, dtype=dtypes[name]) for name, shape in shapes.items()), {}

    notes = (*_NOTES, *((_PACKED_NOTE,) if has_packed(model) else ()), *(() if is_fixed else (ASSUMED_BATCH,)))
    return LoadedModel(
        name=Path(reference).stem,
        model=module,
        make_inputs=make_inputs,
        batch=fixed,
        batch_is_fixed=is_fixed,
        notes=notes,
    )


def _sizes(
    dims: Mapping[str, _Dims],
    dtypes: Mapping[str, torch.dtype],
    specs: Sequence[InputSpec],
    *,
    batch: int | str,
    reference: str,
) -> dict[str, list[int | None]]:
    """Return the sizes of each input, None for a dimension that is the batch, whose size or name is `batch`."""
    unnamed = iter(name for name in dims if name not in {spec.name for spec in specs})
    given = {spec.name or next(unnamed, ""): spec for spec in specs}
    sizes: dict[str, int] = {}
    for name, spec in given.items():
        if name not in dims:
            listed = ", ".join(dims)
            raise LoadError(f"--input {spec}: {reference} has no such input", hint=f"its inputs are {listed}")
        stated, dtype = dims[name][1:], str(dtypes[name]).removeprefix("torch.")
        fits = len(stated) == len(spec.shape) and all(
            size == new for size, new in zip(stated, spec.shape, strict=True) if isinstance(size, int)
        )
        if not fits or spec.dtype not in ("float32", dtype):  # float32 is what an omitted dtype reads as
            takes = "x".join(str(size) or "N" for size in stated)
            raise LoadError(f"--input {spec}: {reference} takes {name}={takes}:{dtype}", hint="keep its fixed sizes")
        sizes |= {size: new for size, new in zip(stated, spec.shape, strict=True) if isinstance(size, str) and size}
    found: dict[str, list[int | None]] = {}
    for name, stated in dims.items():
        if name in given:
            sizes_here: list[int | str] = [*stated[:1], *given[name].shape]
        else:
            sizes_here = [sizes.get(size, size) if isinstance(size, str) else size for size in stated]
        # The first dimension is the batch, and so is every other one of its name.
        is_batch = [isinstance(size, str) and (not at or size == batch != "") for at, size in enumerate(stated)]
        known = [None if is_it else size for size, is_it in zip(sizes_here, is_batch, strict=True)]
        left = [size or "one" for size in known if isinstance(size, str)]
        if left:
            example = "x".join("128" if isinstance(size, str) else str(size) for size in stated[1:])
            raise LoadError(
                f"{reference}: the file leaves sizes of the input {name} open: {', '.join(left)}",
                hint=f"give them, without the batch: --input {name}={example}",
            )
        found[name] = [None if size is None else int(size) for size in known]
    return found
