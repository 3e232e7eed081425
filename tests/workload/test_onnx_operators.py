from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from advisor.workload.onnx_graph import GraphModule
from advisor.workload.onnx_operators import COUNTERPARTS

_VERSION = 24
_rng = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _rng.random(shape, dtype=np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


class Case:
    """One node: the inputs that a model computes, the constants that its file holds, and its attributes."""

    def __init__(self, op: str, *inputs: Any, version: int = _VERSION, outputs: int = 1, **attributes: Any) -> None:
        self.op, self.inputs, self.version, self.outputs, self.attributes = op, inputs, version, outputs, attributes

    def __repr__(self) -> str:
        return self.op + "".join(f"-{name}" for name in self.attributes) + f"-{self.version}"


def _cases(ops: str, *inputs: Any) -> list[Case]:
    return [Case(op, *inputs) for op in ops.split()]


_IMAGE, _MATRIX = _floats(2, 4, 6, 6), _floats(3, 4)
CASES = [
    *_cases("Abs Ceil Cos Erf Exp Floor HardSwish Log Mish Neg Reciprocal Relu Round", _MATRIX),
    *_cases("Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh Acos", _MATRIX),
    *_cases("Elu Celu Gelu LeakyRelu ThresholdedRelu Identity", _MATRIX),
    *_cases("Add Sub Mul Div Pow Less GreaterOrEqual Equal Max Min Sum Mean", _MATRIX, _floats(4)),
    *(Case(op, _MATRIX > 0.5, _MATRIX < 0.7) for op in ("And", "Or", "Xor")),
    *_cases("Asin Asinh Atan Atanh Cosh Dropout IsInf IsNaN", _MATRIX),
    *_cases("Mod BitwiseAnd BitwiseOr BitwiseXor", np.array([[5, 3], [1, 8]]), np.array([[2, 2], [3, 3]])),
    Case("Acosh", 1 + _MATRIX),
    Case("BitwiseNot", np.array([[5, 3]])),
    *(Case(op, _MATRIX, _floats(4)) for op in ("Greater", "LessOrEqual")),
    Case("HardSigmoid", _MATRIX, alpha=1 / 6),
    Case("Div", np.array([7, 9]), np.array([2, 4])),
    Case("Not", _MATRIX > 0.5),
    Case("Where", _MATRIX > 0.5, _MATRIX, _floats(4)),
    Case("Clip", _MATRIX, np.float32(0.2), np.float32(0.6)),
    *(Case("PRelu", _IMAGE - 0.5, _floats(*shape)) for shape in ((4, 1, 1), (1,), (6,), (4, 6, 6), (2, 4, 6, 6))),
    Case("PRelu", _IMAGE - 0.5, _floats(4), version=6),
    Case("MatMul", _floats(2, 3, 4), _floats(4, 5)),
    Case("Gemm", _MATRIX, _floats(5, 4), _floats(5), transB=1),
    Case("Gemm", _floats(4, 3), _floats(4, 5), transA=1, alpha=2.0),
    Case("Einsum", _MATRIX, _floats(4, 2), equation="ij,jk->ik"),
    Case("Softmax", _IMAGE, axis=1),
    Case("Softmax", _IMAGE, axis=3, version=11),
    Case("LogSoftmax", _MATRIX),
    Case("ReduceMean", _IMAGE, _ints(2, 3)),
    Case("ReduceMean", _IMAGE, axes=[2, 3], keepdims=0, version=13),
    Case("ReduceMax", _MATRIX, keepdims=0),
    Case("ReduceMin", _MATRIX, _ints(-1)),
    Case("ReduceSum", _MATRIX, noop_with_empty_axes=1),
    Case("ReduceProd", _IMAGE, _ints(1, -1), keepdims=0),
    *_cases("ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceLogSum", _IMAGE, _ints(1, 2)),
    Case("ArgMax", _MATRIX, axis=1, keepdims=0),
    Case("ArgMin", _MATRIX),
    Case("Conv", _IMAGE, _floats(8, 2, 3, 3), _floats(8), group=2, pads=[1, 1, 1, 1], strides=[2, 2]),
    Case("Conv", _IMAGE, _floats(8, 4, 3, 3), pads=[0, 1, 2, 1], dilations=[2, 1]),
    Case("Conv", _IMAGE, _floats(8, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    Case("Conv", _floats(2, 4, 9), _floats(3, 4, 3)),
    Case("ConvTranspose", _IMAGE, _floats(4, 3, 2, 2), strides=[2, 2]),
    Case("MaxPool", _IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    Case("MaxPool", _IMAGE, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1]),
    Case("AveragePool", _IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    Case("AveragePool", _IMAGE, kernel_shape=[2, 2], count_include_pad=1, pads=[1, 1, 1, 1]),
    Case("GlobalAveragePool", _IMAGE),
    Case("GlobalMaxPool", _IMAGE),
    Case("Resize", _IMAGE, None, np.array([1, 1, 2, 2], dtype=np.float32)),
    Case("Resize", _IMAGE, None, None, _ints(2, 4, 9, 12), mode="linear"),
    Case("GridSample", _IMAGE, 2 * _floats(2, 3, 5, 2) - 1),
    Case("DepthToSpace", _IMAGE, blocksize=2, mode="CRD"),
    Case("SpaceToDepth", _floats(1, 1, 4, 4), blocksize=2),
    Case("BatchNormalization", _IMAGE, _floats(4), _floats(4), _floats(4), _floats(4)),
    Case("LayerNormalization", _MATRIX, _floats(4), _floats(4)),
    Case("LayerNormalization", _IMAGE, _floats(6), axis=2),
    Case("RMSNormalization", _MATRIX, _floats(4)),
    Case("GroupNormalization", _IMAGE, _floats(4), _floats(4), num_groups=2),
    Case("InstanceNormalization", _IMAGE, _floats(4), _floats(4)),
    Case("LRN", _IMAGE, size=3),
    Case("LpNormalization", _MATRIX),
    Case("Gather", _floats(7, 4), np.array([[0, 6], [3, 3]])),
    Case("Gather", _IMAGE, np.array([[0, 3]]), axis=1),
    Case("GatherElements", _MATRIX, np.array([[0, 3], [1, 1], [2, 0]]), axis=1),
    Case("GatherND", _MATRIX, np.array([[0, 3], [1, 1]])),
    Case("ScatterND", _MATRIX, np.array([[0], [2]]), _floats(2, 4)),
    Case("ScatterElements", _MATRIX, np.array([[0, 1], [2, 1]]), _floats(2, 2), axis=1, reduction="add"),
    Case("ScatterElements", _MATRIX, np.array([[0, 1], [2, 3]]), _floats(2, 2), axis=1),
    Case("NonZero", _MATRIX),
    Case("CumSum", _MATRIX, np.int64(1)),
    Case("TopK", _MATRIX, _ints(2), outputs=2),
    Case("Trilu", _MATRIX, upper=0),
    Case("Slice", _IMAGE, _ints(0, -1), _ints(2**62, -9), _ints(2, 3), _ints(2, -2)),
    Case("Slice", _IMAGE, starts=[1], ends=[-1], axes=[3], version=9),
    Case("Split", _IMAGE, _ints(1, 3), axis=1, outputs=2),
    Case("Split", _MATRIX, axis=1, num_outputs=3, outputs=3),
    *(Case("Split", _MATRIX, axis=1, outputs=2, version=version) for version in (2, 11, 13)),
    Case("Split", _IMAGE, axis=1, split=[1, 3], outputs=2, version=11),
    Case("Concat", _MATRIX, _floats(1, 4), axis=0),
    Case("Reshape", _IMAGE, _ints(0, -1)),
    Case("Flatten", _IMAGE, axis=2),
    Case("Flatten", _IMAGE, axis=0),
    Case("Squeeze", _floats(1, 3, 1), _ints(-1)),
    Case("Unsqueeze", _MATRIX, _ints(0, -1)),
    Case("Transpose", _IMAGE),
    Case("Transpose", _IMAGE, perm=[0, 2, 3, 1]),
    Case("Expand", _floats(3, 1), _ints(2, 1, 4)),
    Case("Tile", _MATRIX, _ints(2, 1)),
    Case("Pad", _IMAGE, _ints(0, 0, 1, 0, 0, 0, 0, 2)),
    Case("Pad", _IMAGE, _ints(0, 0, 1, 1, 0, 0, 1, 1), mode="edge"),
    Case("Cast", _MATRIX, to=TensorProto.INT32),
    Case("Attention", _floats(2, 4, 5, 8), _floats(2, 4, 6, 8), _floats(2, 4, 6, 8)),
    Case("Attention", _floats(2, 5, 32), _floats(2, 5, 16), _floats(2, 5, 16), q_num_heads=4, kv_num_heads=2),
    *(
        Case(op, _floats(5, 2, 3), _floats(2, gates * 4, 3), _floats(2, gates * 4, 4), hidden_size=4, outputs=2, **way)
        for op, gates, way in (("LSTM", 4, {}), ("GRU", 3, {}), ("RNN", 1, {}))
        for way in ({"direction": "bidirectional"},)
    ),
]  # fmt: skip
_SHAPES_ALONE = ("LSTM", "GRU", "RNN", "Resize")
"""Operators whose shapes alone are compared: torch orders the gates otherwise, and picks other points on ties."""


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_counterpart_computes_what_onnx_defines(case: Case) -> None:
    """Constants of shapes are the file's; everything else is an input, as the weights of a file have no values here."""
    names = [f"x{index}" if value is not None else "" for index, value in enumerate(case.inputs)]
    given = {name: np.asarray(value) for name, value in zip(names, case.inputs, strict=True) if name}
    is_of_shape = {
        name for name in list(given)[1:] if given[name].dtype == np.int64 and given[name].ndim < 2 and case.op != "Div"
    } | {name for name in given if case.op in ("Resize", "Clip") and name != "x0"}
    outputs = [f"y{index}" for index in range(case.outputs)]
    graph = helper.make_graph(
        [helper.make_node(case.op, names, outputs, **case.attributes)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
            if name not in is_of_shape
        ],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [onnx.numpy_helper.from_array(given[name], name) for name in sorted(is_of_shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.version)])
    expected = ReferenceEvaluator(model).run(None, {name: given[name] for name in given if name not in is_of_shape})
    module = GraphModule(model)
    with torch.no_grad():
        found = module(*(torch.from_numpy(given[name]) for name in module.input_names))
    for one, other in zip(found, expected, strict=True):
        assert tuple(one.shape) == other.shape
        if case.op not in _SHAPES_ALONE:
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5)


def test_every_counterpart_is_compared_with_onnx() -> None:
    older = {"Scatter", "Upsample"}  # the earlier names of ScatterElements and Resize
    assert set(COUNTERPARTS) - {case.op for case in CASES} == older
