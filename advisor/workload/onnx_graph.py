"""Runs the graph of an ONNX model by torch, operator by operator, so that it is traced like any other model.

Values that follow from shapes and small constants alone (the target of a Reshape) are computed by onnx's own reference
implementation and cost nothing, as in torch, where a shape is no tensor. Weights keep their shapes and dtypes only.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper, shape_inference
from onnx.external_data_helper import uses_external_data
from torch import nn

from advisor.errors import TraceError
from advisor.workload.onnx_operators import COUNTERPARTS, Array, Call
from advisor.workload.user_error import passes_arguments_on

_MOST_KNOWN = 4096
"""Elements of the largest constant whose values are kept, to compute shapes from."""
_OWN_DOMAINS = ("", "ai.onnx")
_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata in which torch's exporter lists the modules around a node, outermost first, and the node itself."""
_PACKED = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")
"""Types of less than a byte, which torch lacks."""
_NODE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError, AttributeError)
"""Errors of torch and of onnx's reference implementation about a node's operands."""

_LIBRARY = torch.library.Library("onnx", "FRAGMENT")
_OVERLOAD = "counted"
"""torch declares operators of ONNX's newest versions itself, with overloads of other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a graph, decoded once."""

    op: str
    domain: str
    version: int
    where: str
    """The node's own name, for messages."""
    scope: tuple[str, ...]
    """The path of the module that the node comes from."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    frees: tuple[str, ...]
    """Values that no later node reads."""
    proto: onnx.NodeProto


class GraphModule(nn.Module):
    """A model whose forward runs an ONNX graph on torch's operators; its arguments are named in `input_names`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._versions = {opset.domain: opset.version for opset in model.opset_import}
        self._model = model
        self._keys: dict[str, str] = {}
        self._constants: dict[str, Array] = {}
        graph = model.graph
        for initializer in graph.initializer:
            self._add(initializer.name, initializer)
        self.input_names = tuple(one.name for one in graph.input if one.name not in self._keys | self._constants)
        self._outputs = tuple(one.name for one in graph.output)
        self._declared = {one.name: one.type for one in (*graph.value_info, *graph.output)}
        self._input_dims = [
            [dim.dim_param for dim in one.type.tensor_type.shape.dim]
            for one in graph.input
            if one.name in self.input_names
        ]
        self._sizes: dict[str, int] = {}
        self._nodes = self._decoded(graph.node, kept=self._outputs)
        self._scopes = {scope: self._scope(scope) for scope in {node.scope for node in self._all_nodes(self._nodes)}}

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the graph."""
        values: dict[str, Any] = dict(zip(self.input_names, inputs, strict=True))
        values |= self._constants
        self._sizes = {
            name: size
            for names, tensor in zip(self._input_dims, inputs, strict=True)
            for name, size in zip(names, tensor.shape, strict=True)
            if name
        }
        self._run(self._nodes, values)
        return tuple(self._tensor(values, name) for name in self._outputs)

    # -- building -----------------------------------------------------------------------------------------------------

    def _add(self, name: str, proto: onnx.TensorProto) -> None:
        """Add a constant: a parameter if it is a weight, a buffer if it is large; small ones keep their values too."""
        dtype, shape = dtype_of(proto.data_type), tuple(proto.dims)
        count = int(np.prod(shape))
        if count <= _MOST_KNOWN and not uses_external_data(proto) and proto.data_type != onnx.TensorProto.STRING:
            self._constants[name] = numpy_helper.to_array(proto)
        is_weight = dtype.is_floating_point or dtype in (torch.int8, torch.uint8)
        if not shape or (not is_weight and name in self._constants):
            return
        key = f"constant_{len(self._keys)}"
        blank = torch.empty(shape, dtype=dtype, device="meta")
        if is_weight:
            self.register_parameter(key, nn.Parameter(blank, requires_grad=False))
        else:
            self.register_buffer(key, blank)
        self._keys[name] = key

    def _decoded(self, protos: Sequence[onnx.NodeProto], *, kept: Sequence[str]) -> tuple[Node, ...]:
        """Return the nodes; `kept` values are read after the last one."""
        seen = set(kept)
        nodes = []
        for proto in reversed(protos):
            read = set(_names_read(proto))
            domain = "" if proto.domain in _OWN_DOMAINS else proto.domain
            nodes.append(
                Node(
                    op=proto.op_type,
                    domain=domain,
                    version=self._versions.get(domain, 1),
                    where=proto.name or ", ".join(proto.output),
                    scope=_scope_of(proto),
                    inputs=tuple(proto.input),
                    outputs=tuple(proto.output),
                    attributes={one.name: self._attribute(one, kept=proto.output) for one in proto.attribute},
                    frees=tuple(read - seen),
                    proto=proto,
                )
            )
            seen |= read
        return tuple(reversed(nodes))

    def _attribute(self, proto: onnx.AttributeProto, *, kept: Sequence[str]) -> Any:
        value = onnx.helper.get_attribute_value(proto)
        if proto.type == onnx.AttributeProto.GRAPH:
            for initializer in value.initializer:
                self._add(initializer.name, initializer)
            outputs = tuple(one.name for one in value.output)
            return self._decoded(value.node, kept=(*kept, *outputs)), outputs
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="replace")
        return list(value) if proto.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value

    def _all_nodes(self, nodes: Sequence[Node]) -> Iterator[Node]:
        for node in nodes:
            yield node
            for attribute in node.proto.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from self._all_nodes(node.attributes[attribute.name][0])

    def _scope(self, path: tuple[str, ...]) -> "_Scope | None":
        """Return the module of a path, made with those around it; None for the whole model."""
        module: nn.Module = self
        for name in path:
            if name not in module._modules:
                module._modules[name] = _Scope()
            module = module._modules[name]  # type: ignore[assignment]
        return module if isinstance(module, _Scope) else None

    # -- running ------------------------------------------------------------------------------------------------------

    def _run(self, nodes: Sequence[Node], values: dict[str, Any]) -> None:
        for node in nodes:
            scope = self._scopes[node.scope]
            made = self._made(node, values) if scope is None else scope(self._made, node, values)
            values.update(zip(node.outputs, made, strict=False))
            del made
            for name in node.frees:
                values.pop(name, None)

    @passes_arguments_on
    def _made(self, node: Node, values: dict[str, Any]) -> Sequence[Any]:
        """Return the node's outputs: arrays if only known values enter, else tensors."""
        try:
            if node.op == "Constant" and not node.domain:
                return [_constant(node)]
            if node.op == "Shape" and not node.domain:
                name = node.inputs[0]
                shaped = values[name] if name in values else getattr(self, self._keys[name])
                first, end = node.attributes.get("start", 0), node.attributes.get("end")
                return [np.array(list(shaped.shape)[first:end], dtype=np.int64)]
            if node.op == "Size" and not node.domain:
                return [np.array(self._tensor(values, node.inputs[0]).numel(), dtype=np.int64)]
            known = [values.get(name) if isinstance(values.get(name), np.ndarray) else None for name in node.inputs]
            if node.op == "If" and known[0] is not None:
                return self._branch(node, values, known[0].item())
            if not node.domain and all(one is not None for one in known) and not _is_large(node, known):
                return self._folded(node, known)
            return self._computed(node, values, known)
        except _NODE_ERRORS as error:
            raise RuntimeError(f"node {node.where} ({node.op}): {error}") from error

    def _branch(self, node: Node, values: dict[str, Any], condition: bool) -> Sequence[Any]:
        nodes, outputs = node.attributes["then_branch" if condition else "else_branch"]
        self._run(nodes, values)
        return [values[name] if name in values else self._tensor(values, name) for name in outputs]

    def _folded(self, node: Node, known: Sequence[Array | None]) -> Sequence[Any]:
        from onnx.reference import ReferenceEvaluator  # takes half a second to import

        typeless = onnx.TypeProto()
        graph = onnx.helper.make_graph(
            [node.proto],
            "node",
            [onnx.helper.make_value_info(name, typeless) for name in dict.fromkeys(node.inputs) if name],
            [onnx.helper.make_value_info(name, typeless) for name in node.outputs if name],
        )
        given = {name: value for name, value in zip(node.inputs, known, strict=True) if name}
        made: Sequence[Any] = ReferenceEvaluator(graph, opsets=self._versions).run(None, given)  # type: ignore[assignment]
        return made

    def _computed(self, node: Node, values: dict[str, Any], known: Sequence[Array | None]) -> Sequence[Any]:
        tensors = [self._tensor(values, name) if name else None for name in node.inputs]
        if node.op in ("Cast", "CastLike"):
            dtype = dtype_of(node.attributes["to"]) if node.op == "Cast" else tensors[1].dtype  # type: ignore[union-attr]
            return [tensors[0].to(dtype)]  # type: ignore[union-attr]
        if node.op == "ConstantOfShape" and known[0] is not None:
            value = node.attributes.get("value")
            dtype = torch.float32 if value is None else dtype_of(value.data_type)
            return [torch.full(known[0].tolist(), 0, dtype=dtype)]
        counterpart = None if node.domain else COUNTERPARTS.get(node.op)
        if counterpart is not None:
            call = Call(
                op=node.op,
                version=node.version,
                inputs=tensors,
                known=known,
                attributes=node.attributes,
                output_count=len(node.outputs),
            )
            result = counterpart(call)
            if result is not NotImplemented:
                return [result] if isinstance(result, torch.Tensor) else result
        return self._counted(node, tensors, known)

    def _counted(
        self, node: Node, tensors: Sequence[torch.Tensor | None], known: Sequence[Array | None]
    ) -> Sequence[torch.Tensor]:
        """Call a placeholder for an operator without a counterpart: it has the outputs' shapes and no formula."""
        types = self._inferred(node, tensors, known)
        shapes, dtypes = [], []
        for name in filter(None, node.outputs):
            described = (types.get(name) or self._declared.get(name) or onnx.TypeProto()).tensor_type
            shape = [
                dim.dim_value if dim.HasField("dim_value") else self._sizes.get(dim.dim_param)
                for dim in described.shape.dim
            ]
            if not described.HasField("shape") or None in shape:
                raise TraceError(
                    f"node {node.where}: the shape of the output {name} of {node.domain}{'.' * bool(node.domain)}"
                    f"{node.op} is not known",
                    hint="export the model without its runtime's own operators, or with the shapes of all values "
                    "(onnx.shape_inference)",
                )
            shapes.append(shape)
            dtypes.append(dtype_of(described.elem_type))
        made = _operator(f"{node.domain}_{node.op}".strip("_").replace(".", "_").replace("-", "_"))(
            [one for one in tensors if one is not None], repr(shapes), dtypes
        )
        by_name = dict(zip(filter(None, node.outputs), made, strict=True))
        return [by_name.get(name) for name in node.outputs]  # type: ignore[misc]

    def _inferred(
        self, node: Node, tensors: Sequence[torch.Tensor | None], known: Sequence[Array | None]
    ) -> dict[str, onnx.TypeProto]:
        """Return the outputs' types as onnx infers them; none for an operator that it does not know."""
        if not onnx.defs.has(node.op, node.version, node.domain):
            return {}
        types = {
            name: onnx.helper.make_tensor_type_proto(_onnx_dtype(tensor), list(tensor.shape))
            for name, tensor in zip(node.inputs, tensors, strict=True)
            if tensor is not None
        }
        data = {
            name: numpy_helper.from_array(value, name)
            for name, value in zip(node.inputs, known, strict=True)
            if value is not None
        }
        try:
            return shape_inference.infer_node_outputs(
                onnx.defs.get_schema(node.op, node.version, node.domain),
                node.proto,
                types,
                data,
                opset_imports=list(self._model.opset_import),
                ir_version=self._model.ir_version,
            )
        except shape_inference.InferenceError:
            return {}

    def _tensor(self, values: Mapping[str, Any], name: str) -> torch.Tensor:
        """Return a value as a tensor; raise `ValueError` for a name that no node has made."""
        if name in self._keys:
            found: torch.Tensor = getattr(self, self._keys[name])
            return found
        value = values.get(name)
        if isinstance(value, np.ndarray):
            return torch.empty(value.shape, dtype=dtype_of(onnx.helper.np_dtype_to_tensor_dtype(value.dtype)))
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"there is no value {name}")
        return value


class _Scope(nn.Module):
    """A module of the exported model; its nodes run one by one inside it, so that they are attributed to it."""

    def forward(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


def dtype_of(number: int) -> torch.dtype:
    """Return torch's dtype of an element type of ONNX; types of less than a byte take a byte. Raises `TraceError`."""
    name = onnx.TensorProto.DataType.Name(number)
    if name in _PACKED:
        return torch.uint8
    names = {"FLOAT": "float32", "DOUBLE": "float64"}
    dtype = getattr(torch, names.get(name, name.lower().replace("float8e", "float8_e")), None)
    if not isinstance(dtype, torch.dtype):
        raise TraceError(f"tensors of the type {name} have no counterpart in torch", hint="remove them from the model")
    return dtype


def has_packed(model: onnx.ModelProto) -> bool:
    """Return True if the model has weights of less than a byte, which `dtype_of` counts as one."""
    packed = {onnx.TensorProto.DataType.Value(name) for name in _PACKED}
    return any(one.data_type in packed for one in model.graph.initializer)


def _onnx_dtype(tensor: torch.Tensor) -> int:
    name = str(tensor.dtype).removeprefix("torch.").upper().replace("FLOAT8_E", "FLOAT8E")
    number: int = onnx.TensorProto.DataType.Value({"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}.get(name, name))
    return number


@cache
def _operator(name: str) -> Any:
    """Declare the operator onnx::NAME, which makes tensors of given shapes, and return it."""
    _LIBRARY.define(f"{name}.{_OVERLOAD}(Tensor[] inputs, str shapes, ScalarType[] dtypes) -> Tensor[]")
    _LIBRARY.impl(f"{name}.{_OVERLOAD}", _blanks, "CompositeExplicitAutograd")
    return getattr(getattr(torch.ops.onnx, name), _OVERLOAD)


def _blanks(_: Any, shapes: str, dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=dtype) for shape, dtype in zip(ast.literal_eval(shapes), dtypes, strict=True)]


def _constant(node: Node) -> Array:
    """Return the value of a Constant, given in one of several attributes."""
    (value,) = node.attributes.values()
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value)


def _is_large(node: Node, known: Sequence[Array | None]) -> bool:
    """Return True if the values are too many to compute, as the weights of a Constant are."""
    return node.op == "ConstantOfShape" and known[0] is not None and int(np.prod(known[0])) > _MOST_KNOWN


def _names_read(proto: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, those that its subgraphs read from outside included."""
    yield from filter(None, proto.input)
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from (one.name for one in attribute.g.output)
            for inner in attribute.g.node:
                yield from _names_read(inner)


def _scope_of(proto: onnx.NodeProto) -> tuple[str, ...]:
    """Return the path of the module that a node comes from, as torch's exporters write it in metadata or in the name.

    The name of a node of `layer1.0.conv1` is "/layer1/layer1.0/conv1/Conv".
    """
    for entry in proto.metadata_props:
        if entry.key == _SCOPES:
            *modules, _ = ast.literal_eval(entry.value)
            return tuple(modules[-1].split(".")) if modules and modules[-1] else ()
    path: list[str] = []
    for part in filter(None, proto.name.split("/")[:-1]):
        *around, last = part.split(".")
        path += [last] if around and path[-len(around) :] == around else [*around, last]
    return tuple(path)
