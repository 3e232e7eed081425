import copy
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from advisor.errors import DocumentError, LoadError
from advisor.records.workload import SCHEMA_VERSION, MemoryLine, Operand, Row, StoredBytes, Workload
from advisor.workload.file import read_workload, workload_from_json, workload_to_json
from advisor.workload.summary import unknown_ops
from tests.workload.tracing import Calls, cnn, images, mlp, sequences, traced, vectors

# -- save then load is the identity ------------------------------------------------------------------------------------

SIZES = st.integers(0, 10**9)
# Four of these, at a batch of 4,096, are a tensor of less than 2**48 elements.
DIMS = st.integers(0, 3_700) | st.tuples(st.floats(0, 100), st.floats(0, 0.8))
OPERANDS = st.builds(
    Operand,
    shape=st.lists(DIMS, max_size=4).map(tuple),
    dtype=st.sampled_from(["float32", "int64", "bfloat16"]),
    low=st.booleans(),
    fused=st.booleans(),
)
SCALARS = st.booleans() | st.integers(-100, 100) | st.floats(-1e9, 1e9) | st.text(max_size=8)
ROWS = st.builds(
    Row,
    op=st.sampled_from(["aten.add", "aten.relu", "own.thing"]),
    family=st.sampled_from(["pointwise", "unknown"]),
    phase=st.sampled_from(["forward", "loss", "backward", "optimizer"]),
    module=st.text(max_size=20),
    inputs=st.lists(OPERANDS, max_size=3).map(tuple),
    outputs=st.lists(OPERANDS, max_size=2).map(tuple),
    attributes=st.dictionaries(
        st.text(max_size=8), st.none() | SCALARS | st.lists(SCALARS, max_size=3).map(tuple), max_size=3
    ),
    count=st.integers(1, 10**6),
)
# May start below zero, but not fall, and not be below zero at a batch of one.
LINES = st.builds(
    lambda line, squared: (line[0] - line[1], line[1], *squared),
    st.tuples(st.floats(0, 1e12), st.floats(0, 1e9)),
    st.lists(st.floats(0, 1e6), max_size=1),
)
STORED = st.builds(StoredBytes, low=LINES, full=LINES, other=LINES)
MOMENTS = st.builds(
    MemoryLine,
    phase=st.sampled_from(["forward", "backward"]),
    parameters=STORED, buffers=STORED, gradients=STORED, optimizer_state=STORED, activations=STORED, temporaries=STORED,
)  # fmt: skip
WORKLOADS = st.builds(
    Workload,
    schema_version=st.just(SCHEMA_VERSION),
    name=st.text(max_size=20),
    mode=st.sampled_from(["inference", "training"]),
    batch=st.integers(1, 4096),
    batch_is_affine=st.booleans(),
    traced_batches=st.lists(st.integers(1, 4096), min_size=1, max_size=3).map(tuple),
    method=st.sampled_from(["fake", "symbolic", "cpu_step"]),
    torch_version=st.text(max_size=10),
    parameter_count=st.integers(10**8, 10**12),
    parameter_bytes=SIZES,
    optimizer=st.none() | st.text(max_size=8),
    inputs=st.lists(OPERANDS, max_size=2).map(tuple),
    rows=st.lists(ROWS, max_size=4).map(tuple),
    memory=st.lists(MOMENTS, min_size=1, max_size=3).map(tuple),
    unknown_ops=st.just({}),
    assumptions=st.lists(st.text(max_size=10), max_size=2).map(tuple),
)


def through_json(workload):
    return workload_from_json(json.loads(json.dumps(workload_to_json(workload))))


@given(WORKLOADS)
def test_save_then_load_is_the_identity(workload):
    workload = replace(workload, unknown_ops=unknown_ops(workload.rows))
    assert through_json(workload) == workload


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_so_it_is_for_what_is_traced(mode):
    recurrent = Calls(lambda self, x: self.layer(x)[0], layer=nn.LSTM(8, 4, bidirectional=True))
    for model, make_inputs in ((cnn(), images), (recurrent, sequences)):
        workload = traced(model, make_inputs, mode=mode)
        assert through_json(workload) == workload


def test_a_file_is_read_as_it_was_written(tmp_path):
    workload = traced(cnn(), images)
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(workload_to_json(workload)), encoding="utf-8")
    assert read_workload(path) == workload


def test_the_document_holds_what_a_reader_wants():
    document = workload_to_json(traced(cnn(), images))
    assert document["totals"].keys() == {
        "batch", "flops", "read_bytes", "write_bytes", "peak_memory_bytes", "parameter_count", "op_count",
    }  # fmt: skip
    assert {"by_family", "by_module", "by_phase", "coverage_ratio", "unknown_ops", "rows"} <= document.keys()
    # 4 x (a 3x3 convolution of 3 into 4 channels on 8 x 8: 2 x 27 x 4 x 64 = 13824; linear: 2 x 256 x 5 = 2560).
    flops_by_family = {group["name"]: group["flops"] for group in document["by_family"]}
    assert flops_by_family["conv"] == 4 * 13824
    assert flops_by_family["matmul"] == 4 * 2560
    json.dumps(document, allow_nan=False)


# -- documents that are none -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good():
    return json.loads(json.dumps(workload_to_json(traced(cnn(), images))))


@pytest.fixture
def document(good):
    return copy.deepcopy(good)


def refused(document):
    with pytest.raises(LoadError) as caught:
        workload_from_json(document, where="w.json")
    assert caught.value.message.startswith("w.json: ")
    assert caught.value.hint
    return caught.value


_MAY_BE_MISSING = (
    "blocks", "taken", "squared_taken", "generation", "script", "fine_tuning", "is_half", "is_pretrained",
    "under_fsdp", "unknown_ops",
)  # fmt: skip
KEYS = [name for name in Workload.__dataclass_fields__ if name not in ("schema_version", "rows")]


@pytest.mark.parametrize("key", [key for key in KEYS if key not in _MAY_BE_MISSING])
def test_a_missing_key_is_named(document, key):
    del document[key]
    assert key in refused(document).message


def test_what_is_known_of_memory_beside_its_lines_may_be_missing(document):
    del document["blocks"], document["taken"]
    workload = workload_from_json(document)
    assert (workload.blocks, workload.taken.heap) == ((), 1.0)


@pytest.mark.parametrize("ratio", [0.5, 2.0**64])
def test_an_allocator_takes_no_less_than_there_is(document, ratio):
    document["taken"]["heap"] = ratio
    assert "taken.heap" in refused(document).message


@pytest.mark.parametrize("key", [key for key in KEYS if key != "unknown_ops"])
def test_a_value_of_another_type_is_named(document, key):
    document[key] = {"not": ["this"]}
    assert key in refused(document).message


def test_an_unknown_key_is_named_with_the_one_that_was_meant(document):
    document["memroy"] = document.pop("memory")
    error = refused(document)
    assert "'memroy'" in error.message
    assert error.hint == "did you mean memory?"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused(document, version):
    document["schema_version"] = version
    assert "schema_version" in refused(document).message


@pytest.mark.parametrize("column", ["op", "family", "phase", "module", "count", "inputs", "outputs", "attributes"])
def test_columns_have_one_length_and_are_all_there(document, column):
    document["rows"][column].pop()
    assert column in refused(document).message
    del document["rows"][column]
    assert f"rows.{column}" in refused(document).message


def test_rows_are_columns(document):
    document["rows"] = [{"op": "aten.mm"}]
    assert "rows" in refused(document).message
    document["rows"] = {"opp": []}
    assert "'opp'" in refused(document).message


NOT_NUMBERS = [math.nan, math.inf, -math.inf, 2.0**64, "3", True, None, [], 1.5]


@pytest.mark.parametrize("number", [*NOT_NUMBERS, 0, -1])
def test_a_count_is_a_whole_number_of_at_least_one(document, number):
    document["rows"]["count"][0] = number
    message = refused(document).message
    assert "count" in message
    assert "rows" in message


@pytest.mark.parametrize("key", ["batch", "parameter_count", "parameter_bytes"])
@pytest.mark.parametrize("number", [*NOT_NUMBERS, -1])
def test_so_are_the_totals(document, key, number):
    document[key] = number
    assert key in refused(document).message


NO_DIMENSIONS = [-1, -0.5, math.nan, math.inf, "8", None, [1, 2, 3], [1], [0, -1], [math.nan, 1], 2**64]


@pytest.mark.parametrize("dim", NO_DIMENSIONS)
def test_a_dimension_is_a_size(document, dim):
    document["rows"]["inputs"][0][0]["shape"][1] = dim
    message = refused(document).message
    assert "rows.0" in message
    assert "shape" in message


def test_a_dtype_is_torchs(document):
    document["rows"]["inputs"][0][0]["dtype"] = "float33"
    assert "rows.0 (aten.convolution).inputs.0.dtype: found 'float33'" in refused(document).message


def test_a_matrix_has_two_dimensions(document):
    index = document["rows"]["op"].index("aten.addmm")
    document["rows"]["inputs"][index][2]["shape"] = [10]
    assert f"rows.{index} (aten.addmm)" in refused(document).message


@pytest.mark.parametrize("number", [math.nan, math.inf, "1", None])
def test_memory_is_made_of_numbers(document, number):
    document["memory"][0]["activations"]["full"][0] = number
    assert "memory.0.activations" in refused(document).message


def test_memory_has_a_moment(document):
    document["memory"] = []
    assert "memory" in refused(document).message


@pytest.mark.parametrize("said", [{}, {"own.thing": -3}, None, {"aten.convolution": 1}])
def test_operators_without_a_formula_are_those_of_the_rows_whatever_the_file_says(document, said):
    document["rows"]["op"][1], document["rows"]["family"][1], document["rows"]["count"][1] = "own.thing", "unknown", 3
    document["unknown_ops"] = said
    assert workload_from_json(document).unknown_ops == {"own.thing": 3}


def test_neither_can_a_family_with_a_formula_of_its_own_hide_one(document):
    document["rows"]["op"][1], document["rows"]["family"][1] = "own.thing", "matmul"
    assert "own.thing" in workload_from_json(document).unknown_ops


# A tensor of [6400, -99] has 64 elements at the batch of 64 that it was traced at, and fewer than none above it.
@pytest.mark.parametrize("dim", [[6400, -99], [400, -1], [-2, 1], [-8.5, 4]])
def test_a_dimension_is_a_size_at_every_batch(document, dim):
    document["batch"] = 64
    document["rows"]["inputs"][0][0]["shape"][1] = dim
    assert "rows.0 (aten.convolution).inputs.0.shape" in refused(document).message
    document["batch_is_affine"] = False  # then it is never asked for at another
    assert dim[1] < 0 or workload_from_json(document)


@pytest.mark.parametrize(
    "line",
    [
        [-1e9, 0], [1e9, -1], [-8, 4], [1e300, 0], [0, 1e18], [0, 4, -1], [9, -4, 1], [-8, 4, 3], [0, 0, 1e18], [1],
        [1, 1, 1, 1], [],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["parameters", "activations", "kv_cache"])
def test_memory_is_neither_less_than_nothing_at_any_batch_nor_more_than_machines_have(document, kind, line):
    document["memory"][0][kind]["full"] = line
    assert f"memory.0.{kind}" in refused(document).message


def test_memory_may_start_below_nothing_where_a_batch_of_one_has_some(document):
    document["memory"][0]["activations"]["full"] = [-4, 4]
    assert workload_from_json(document).memory[0].activations.full == (-4, 4)


def test_memory_may_grow_with_the_square_of_the_batch(document):
    document["memory"][0]["activations"]["full"] = [2, -3, 1]
    assert workload_from_json(document).memory[0].activations.full == (2, -3, 1)


def test_a_file_names_squares_only_where_there_are_some():
    def loss(output, batch):
        return (output @ output.t()).logsumexp(1).mean()

    usual, squared = (
        workload_to_json(traced(mlp(), vectors, mode="training", loss=chosen))
        for chosen in (lambda output, batch: output.mean(), loss)
    )
    for document, lengths in ((usual, {2}), (squared, {2, 3})):
        found = {len(growth) for line in document["memory"] for stored in parts_of(line) for growth in stored.values()}
        assert found == lengths
    assert "squared_taken" not in usual
    assert workload_from_json(squared).squared_taken is not None
    squared["squared_taken"]["heap"] = 0.5
    assert "squared_taken.heap" in refused(squared).message


def parts_of(line):
    return [stored for stored in line.values() if isinstance(stored, dict)]


@pytest.mark.parametrize(
    ("key", "number"),
    [("parameter_bytes", 2**40), ("parameter_count", 2**50), ("batch", 10**10), ("traced_batches", [0])],
)
def test_totals_beyond_any_machine_are_refused(document, key, number):
    document[key] = number
    assert key in refused(document).message


@pytest.mark.parametrize("key", ["head_count", "kv_head_count", "prompt_tokens", "output_tokens"])
def test_a_generation_is_of_whole_tokens_and_heads(document, key):
    generation = {"prompt_tokens": 8, "output_tokens": 8, "head_count": 4, "kv_head_count": 2}
    document["generation"] = generation
    assert workload_from_json(document).generation.head_count == 4
    for number in (0, -3, 10**12):
        document["generation"] = generation | {key: number}
        assert f"generation.{key}" in refused(document).message


def test_attributes_that_make_fewer_flop_than_none_are_refused(document):
    per_element = dict.fromkeys(("flops_per_element", "read_bytes_per_element", "write_bytes_per_element"), 4)
    document["rows"]["op"][0], document["rows"]["inputs"][0] = "optimizer", []
    document["rows"]["attributes"][0] = {"element_count": 10, **per_element}
    assert workload_from_json(document)
    document["rows"]["attributes"][0]["element_count"] = -10
    assert "rows.0 (optimizer)" in refused(document).message


@pytest.mark.parametrize("text", ['{"batch": 1, "batch": 64}', '{"rows": {"op": [], "op": []}}', '[{"a": 1, "a": 1}]'])
def test_a_repeated_key_is_refused(tmp_path, text):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(LoadError, match="is repeated"):
        read_workload(path)


def test_a_row_has_the_operands_of_its_operator(document):
    document["rows"]["inputs"][0] = []
    assert "rows.0 (aten.convolution)" in refused(document).message


@pytest.mark.parametrize("key", ["mode", "method"])
def test_a_choice_is_one_of_those_there_are(document, key):
    document[key] = "quickly"
    assert f"{key}: input should be" in refused(document).message


@pytest.mark.parametrize("found", [[], 3, "workload", None])
def test_a_document_is_a_mapping(found):
    refused(found)


def test_derived_keys_are_not_read(document, good):
    document["totals"] = {"flops": -1}
    document["coverage_ratio"] = "all"
    assert workload_from_json(document) == workload_from_json(good)


NOT_JSON = {
    "text": "model = 3",
    "empty": "",
    "cut off": '{"schema_version": 1, "name": "a',
    "nan": '{"schema_version": NaN}',
    "infinite": '{"schema_version": -Infinity}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_a_file_that_is_no_json_is_refused(tmp_path, name):
    path = tmp_path / "w.json"
    path.write_text(NOT_JSON[name], encoding="utf-8")
    with pytest.raises(LoadError, match=r"w\.json"):
        read_workload(path)


def test_a_tensor_larger_than_can_be_addressed_is_refused(document):
    # 2**32 x 2**32 = 2**64 elements; each dimension by itself is possible.
    document["rows"]["outputs"][0][0]["shape"] = [2**32, 2**32]
    with pytest.raises(DocumentError, match="expected 0 to") as caught:
        workload_from_json(document)
    assert caught.value.key.endswith("outputs.0.shape")


def test_a_number_with_thousands_of_digits_is_refused(tmp_path, document):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document).replace('"batch": 4', f'"batch": {"9" * 5000}'), encoding="utf-8")
    with pytest.raises(LoadError, match="not JSON"):
        read_workload(path)


def test_a_number_too_large_for_a_float_is_refused(tmp_path, document):
    path = tmp_path / "w.json"
    text = json.dumps(document).replace(f'"parameter_count": {document["parameter_count"]}', '"parameter_count": 1e400')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match=r"\b1e400\b.*\bfinite"):
        read_workload(path)


@pytest.mark.parametrize("depth", [50, 900, 5000])
def test_a_document_that_is_nested_deeply_is_refused(document, depth):
    nested = []
    for _ in range(depth):
        nested = [nested]
    document["rows"]["attributes"][0] = {"deep": nested}
    refused(document)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(LoadError, match="No such file"):
        read_workload(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LoadError, match="UTF-8"):
        read_workload(tmp_path / "binary.json")
