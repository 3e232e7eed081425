import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

from advisor.errors import LoadError, TraceError, UsageError
from advisor.ops.evaluate import row_cost
from advisor.question.from_source import check_source
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources.onnx_file import load
from advisor.workload.trace import trace

from .tracing import Calls, op_counts, traced

FLOAT = TensorProto.FLOAT
EXAMPLES = Path(__file__).parents[2] / "examples"


def saved(folder, nodes, inputs, weights, *, outputs=("y",), version=20, values=(), domains=()) -> str:
    """`inputs` and `weights` are name -> shape; the weights are random."""
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [
            numpy_helper.from_array(one if isinstance(one, np.ndarray) else rng.random(one, dtype=np.float32), name)
            for name, one in weights.items()
        ],
        value_info=values,
    )
    path = folder / "net.onnx"
    opsets = [helper.make_opsetid("", version), *(helper.make_opsetid(domain, 1) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def loaded(path: str, *inputs: str) -> LoadedModel:
    return load(path, mode="inference", specs=parse_input_specs(inputs))


def counted(path: str, *inputs: str) -> Workload:
    return trace(loaded(path, *inputs), mode="inference", batch=None)


def costs(workload: Workload, *, batch: int) -> dict[str, tuple[float, float]]:
    """Return FLOP and bytes by operator; the module of a row and its other attributes are of the source."""
    flops: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for row in workload.rows:
        cost = row_cost(row, batch=batch)
        flops[row.op] += row.count * cost.flops
        moved[row.op] += row.count * (cost.read_bytes + cost.write_bytes)
    return {op: (flops[op], moved[op]) for op in moved}


def test_an_mlp_costs_what_it_costs_in_torch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], transB=1),
    ]
    weights = {"w1": (32, 16), "b1": (32,), "w2": (8, 32), "b2": (8,)}
    found = counted(saved(tmp_path, nodes, {"x": ("batch", 16)}, weights))
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    expected = traced(net, lambda batch: torch.zeros(batch, 16))
    for batch in (1, 7, 64):
        assert costs(found, batch=batch) == costs(expected, batch=batch)
    assert found.parameter_count == expected.parameter_count == 16 * 32 + 32 + 32 * 8 + 8
    assert found.batch_is_affine
    assert found.memory == expected.memory
    assert not found.unknown_ops


def test_a_convolutional_net_costs_what_it_costs_in_torch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["q"]),
        helper.make_node("Flatten", ["q"], ["f"]),
        helper.make_node("Gemm", ["f", "wl", "bl"], ["y"], transB=1),
    ]
    of_norm = dict.fromkeys("gbmv", (8,))
    path = saved(tmp_path, nodes, {"x": ("N", 3, 32, 32)}, {"w": (8, 3, 3, 3), **of_norm, "wl": (5, 8), "bl": (5,)})
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    expected = traced(net.eval(), lambda batch: torch.zeros(batch, 3, 32, 32))
    assert costs(counted(path), batch=16) == costs(expected, batch=16)


def test_attention_with_a_shape_that_the_graph_computes_costs_what_it_costs_in_torch(tmp_path: Path) -> None:
    """The heads are split by a Reshape to (batch, tokens, 4, 8), both taken from the input's shape."""
    split = [
        node
        for name in "qkv"
        for node in (
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "shape"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]),
        )
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Gather", ["all", "first"], ["sizes"]),
        helper.make_node("Concat", ["sizes", "heads"], ["shape"], axis=0),
        *split,
        helper.make_node("Transpose", ["k2"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q2", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"]),
        helper.make_node("MatMul", ["p", "v2"], ["y"]),
    ]
    weights = {
        **{f"w{name}": (32, 32) for name in "qkv"},
        "first": np.array([0, 1]), "heads": np.array([4, 8]), "scale": np.array(8**-0.5, dtype=np.float32),
    }  # fmt: skip
    path = saved(tmp_path, nodes, {"x": ("batch", "tokens", 32)}, weights)

    def run(self: Calls, x: torch.Tensor) -> torch.Tensor:
        q, k, v = ((x @ getattr(self, f"w{name}")).reshape(*x.shape[:2], 4, 8).transpose(1, 2) for name in "qkv")
        return functional.softmax((q @ k.transpose(-1, -2)) * 8**-0.5, -1) @ v

    net = Calls(run, **{f"w{name}": nn.Parameter(torch.zeros(32, 32)) for name in "qkv"})
    expected = traced(net, lambda batch: torch.zeros(batch, 10, 32))
    assert costs(counted(path, "10x32"), batch=6) == costs(expected, batch=6)


def test_an_operator_without_a_counterpart_is_listed_and_moves_its_operands(tmp_path: Path) -> None:
    quantised = np.zeros((16, 8), dtype=np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=FLOAT),
    ]
    found = counted(saved(tmp_path, nodes, {"x": ("batch", 16)}, {"w": quantised}))
    assert found.unknown_ops == {"onnx.DynamicQuantizeLinear": 1, "onnx.MatMulInteger": 1}
    # Reads 4 x 16 bytes, the weight and the zero point; writes 4 x 8 numbers of 4 bytes.
    assert costs(found, batch=4)["onnx.MatMulInteger"] == (0, 4 * 16 + 16 * 8 + 1 + 4 * 8 * 4)
    assert found.parameter_bytes == 16 * 8


def test_an_operator_of_a_runtime_has_the_shape_that_the_file_declares(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w"], ["z"], domain="com.microsoft", name="product"),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    how = {"inputs": {"x": ("batch", 16)}, "weights": {"w": (16, 8)}, "domains": ["com.microsoft"]}
    declared = [helper.make_tensor_value_info("z", FLOAT, ("batch", 8))]
    found = counted(saved(tmp_path, nodes, **how, values=declared))
    assert found.unknown_ops == {"onnx.com_microsoft_FusedMatMul": 1}
    assert costs(found, batch=4)["aten.relu"] == (4 * 8, 2 * 4 * 8 * 4)
    with pytest.raises(TraceError, match=r"product.*com\.microsoft\.FusedMatMul"):
        counted(saved(tmp_path, nodes, **how))


def test_a_condition_that_follows_from_shapes_chooses_its_branch(tmp_path: Path) -> None:
    def branch(op: str) -> onnx.GraphProto:
        inner = [helper.make_node(op, ["x"], [f"of_{op}"])]
        return helper.make_graph(inner, op, [], [helper.make_value_info(f"of_{op}", onnx.TypeProto())])

    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["width"]),
        helper.make_node("Equal", ["width", "sixteen"], ["is_wide"]),
        helper.make_node("If", ["is_wide"], ["y"], then_branch=branch("Tanh"), else_branch=branch("Exp")),
    ]
    weights = {"one": np.array(1), "sixteen": np.array(16)}
    assert op_counts(counted(saved(tmp_path, nodes, {"x": ("batch", 16)}, weights))) == {"aten.tanh": 1}
    assert op_counts(counted(saved(tmp_path, nodes, {"x": ("batch", 15)}, weights))) == {"aten.exp": 1}


def test_rows_are_attributed_to_the_modules_in_the_names_of_torchs_exporters(tmp_path: Path) -> None:
    new = helper.make_node("Tanh", ["b"], ["y"], name="node_tanh")
    scopes = str(["", "layers", "layers.1", "layers.1.act", "tanh"])
    new.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=scopes))
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"], name="/layers/layers.0/act/Tanh"),
        helper.make_node("Exp", ["a"], ["b"], name="/Exp"),
        new,
    ]
    rows = counted(saved(tmp_path, nodes, {"x": ("batch", 16)}, {})).rows
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row.op, row.module] += row.count
    assert counts == {("aten.tanh", "layers.*.act"): 2, ("aten.exp", "GraphModule"): 1}


def test_the_batch_is_fixed_where_the_file_fixes_it(tmp_path: Path) -> None:
    found = loaded(saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": (4, 3)}, {}))
    assert (found.batch, found.batch_is_fixed) == (4, True)
    with pytest.raises(LoadError, match=r"\b4\b.*\b8\b"):
        found.make_inputs(8)


def test_open_sizes_are_taken_from_the_inputs_given(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    path = saved(tmp_path, nodes, {"x": ("batch", "tokens", 8), "z": ("batch", "tokens", 8)}, {})
    with pytest.raises(LoadError, match="tokens"):
        loaded(path)
    for inputs in (["5x8"], ["z=5x8"]):
        (x, z), _ = loaded(path, *inputs).make_inputs(3)
        assert x.shape == z.shape == (3, 5, 8)
    for wrong in ("5x9", "5", "q=5x8", "5x8:int64"):
        with pytest.raises(LoadError):
            loaded(path, wrong)


def test_training_and_timing_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": ("batch", 3)}, {})
    with pytest.raises(LoadError, match="inference"):
        load(path, mode="training", specs=())
    with pytest.raises(UsageError, match="--measure"):
        check_source(path, Options(measure=True), run=False)


def test_weights_in_files_of_their_own_are_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("batch", 64)}, {"w": (64, 64)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert counted(path).parameter_bytes == 64 * 64 * 4


def test_a_file_that_is_none_is_the_users_mistake(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x08\x07 not a graph")
    with pytest.raises(LoadError):
        loaded(str(path))
    with pytest.raises(LoadError):
        loaded(str(tmp_path / "missing.onnx"))
    path.write_bytes(b"")  # an ONNX file without any of its fields
    with pytest.raises(LoadError, match="no operators"):
        load(str(path), mode="inference", specs=())


def test_shapes_that_do_not_fit_name_the_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="/head/MatMul")]
    path = saved(tmp_path, nodes, {"x": ("batch", 16)}, {"w": (15, 8)})
    with pytest.raises(RuntimeError, match="/head/MatMul"):
        counted(path)


@pytest.mark.slow
def test_an_exported_resnet_costs_what_the_model_costs(tmp_path: Path) -> None:
    path = tmp_path / "resnet.onnx"
    export = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from resnet50 import get_model
torch.onnx.export(get_model().eval(), (torch.zeros(2, 3, 224, 224),), sys.argv[2], dynamo=False, input_names=["x"],
                  dynamic_axes={"x": {0: "batch"}}, training=torch.onnx.TrainingMode.PRESERVE)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", export, str(EXAMPLES), str(path)], check=True)
    from advisor.workload.sources import python_file

    own = python_file.load(str(EXAMPLES / "resnet50.py"), mode="inference", specs=())
    expected, found = trace(own, mode="inference", batch=None), counted(str(path))
    for op, (flops, moved) in costs(expected, batch=32).items():
        name = op.removesuffix("_")  # the example's activations are in place
        assert costs(found, batch=32)[name] == pytest.approx((flops, moved), rel=1e-9)
