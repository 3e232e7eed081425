from advisor.predict.weights import with_weights
from advisor.records.generation import Generation
from advisor.records.workload import Row, StoredBytes, Workload
from tests.predict.toys import memory_line, operand, row, workload

GENERATION = Generation(prompt_tokens=8, output_tokens=2)
DATA, RESULT = operand((0.0, 1.0), 10), operand((0.0, 1.0), 20)


def product(module: str, *, phase: str = "prefill") -> Row:
    """A bias of 20, and a matrix of 10 x 20: 800 bytes in fp32."""
    made = row("aten.addmm", (operand(20), DATA, operand(10, 20)), (RESULT,), family="matmul", phase=phase)  # type: ignore[arg-type]
    return Row(**{name: getattr(made, name) for name in Row.__dataclass_fields__} | {"module": module})


def model() -> Workload:
    """Two products in a block and one outside of any; 3 x 880 bytes of parameters."""
    return workload(
        product("layers.*.up"),
        product("layers.*.up", phase="decode"),
        product("lm_head"),
        memory=(memory_line(parameters=StoredBytes(full=(2640.0, 0.0))),),
        generation=GENERATION,
    )


def dtypes(changed: Row) -> list[str]:
    return [one.dtype for one in changed.inputs]


def test_matrices_of_blocks_are_stored_narrower_in_every_phase() -> None:
    inside, decode, outside = with_weights(model(), "int8").rows

    assert dtypes(inside) == dtypes(decode) == ["float32", "float32", "int8"]
    assert dtypes(outside) == ["float32", "float32", "float32"]


def test_memory_holds_them_once_as_they_are_stored() -> None:
    # 800 bytes of fp32 are 200 values: 200 bytes in int8, 400 in bf16, 200 x (0.5 + 2.5 / 128) in int4.
    stored = {
        weights: with_weights(model(), weights).memory[0].parameters for weights in ("fp8", "int8", "bf16", "int4")
    }
    assert all(each.full == (1840.0, 0.0) for each in stored.values())
    assert [each.other[0] for each in stored.values()] == [200.0, 200.0, 400.0, 103.90625]


def test_auto_leaves_them_as_they_are() -> None:
    assert with_weights(model(), "auto") == model()
    narrow = with_weights(model(), "int4")
    assert with_weights(narrow, "auto") == with_weights(narrow, "int4") == narrow


def test_a_step_that_generates_nothing_is_left_alone() -> None:
    assert with_weights(workload(), "int4") == workload()
