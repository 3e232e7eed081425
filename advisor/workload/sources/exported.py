"""Loads `FILE.pt2`, a program saved by `torch.export.save`. Loading unpickles, so it can run any code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import nn
from torch.export import ExportedProgram

from advisor.errors import LoadError
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.inputs import resized
from advisor.workload.loaded import AS_EXPORTED, Inputs, LoadedModel, keep_as_exported

SOURCE = {
    "usage": "FILE.pt2",
    "suffix": ".pt2",
    "is_path": True,
}

_RECORDS = ("archive_format", "serialized_exported_program.json")
"""Ends of the names of records that only exported programs have: since torch 2.7, and before."""


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Load an exported program with the inputs it was exported with.

    Its batch is fixed, unless the leading dimension of its first input was exported as dynamic. It cannot switch
    between training and evaluation; a note says so.
    """
    if not Path(reference).is_file():
        raise LoadError(f"{reference}: no such file", hint="name a file that torch.export.save wrote")
    if not _is_exported(reference):  # torch would log a traceback
        raise LoadError(f"{reference} is not an exported program", hint="name a file that torch.export.save wrote")
    program = torch.export.load(reference)
    if specs or program.example_inputs is None:
        raise LoadError(
            f"{reference}: an exported program takes the inputs it was exported with",
            hint="omit --input, and export the program with the shapes you need",
        )
    inputs: Inputs = program.example_inputs
    batch, batch_is_fixed = _batch(program, reference)

    def make_inputs(size: int) -> Inputs:
        if batch_is_fixed and size != batch:
            raise LoadError(
                f"{reference}: its batch is fixed at {batch}, not {size}",
                hint="export with dynamic_shapes={...: {0: torch.export.Dim('batch')}}",
            )
        arguments: Inputs = resized(inputs, batch, size)
        return arguments

    return LoadedModel(
        name=Path(reference).stem,
        model=_module(program),
        make_inputs=make_inputs,
        batch=batch,
        batch_is_fixed=batch_is_fixed,
        notes=(AS_EXPORTED,),
    )


def _is_exported(reference: str) -> bool:
    """Return True if the file is an archive with a record that torch.export.save writes, and torch.save does not."""
    if not is_zipfile(reference):
        return False
    with ZipFile(reference) as archive:
        return any(name.endswith(_RECORDS) for name in archive.namelist())


def _module(program: ExportedProgram) -> nn.Module:
    """Return the program's module, with `train()` and `eval()` that do nothing instead of raising."""
    module = program.module()
    keep_as_exported(module)
    return module


def _batch(program: ExportedProgram, reference: str) -> tuple[int, bool]:
    """Return the leading dimension of the first input that has one, and True if it is fixed."""
    user_inputs = set(program.graph_signature.user_inputs)
    sizes: list[Any] = [
        node.meta["val"].shape[0]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in user_inputs and getattr(node.meta["val"], "shape", ())
    ]
    args, kwargs = program.example_inputs
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.dim()]
    if not sizes or not tensors:
        raise LoadError(f"{reference} takes no tensor with a batch dimension", hint="export the model with one")
    return tensors[0].shape[0], isinstance(sizes[0], int)
