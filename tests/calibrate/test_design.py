import math

from advisor.calibrate.design import probes
from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace

CPU = probes(("fp32",), size_factor=1)


def test_five_seconds_meet_nets_of_every_precision() -> None:
    both = probes(("fp32", "amp-bf16"), size_factor=1)

    assert [probe.precision for probe in both[:13]] == ["fp32"] * 7 + ["amp-bf16"] * 6
    assert len([probe for probe in both[:13] if probe.name.startswith("net of ")]) == 10


def test_what_only_streams_is_timed_once() -> None:
    both = probes(("fp32", "amp-bf16"), size_factor=1)

    assert not [probe.name for probe in both if probe.precision == "amp-bf16" and probe.name.startswith("relu")]


def test_a_gpu_has_larger_batches_but_for_what_tells_its_host() -> None:
    gpu = {(probe.name, probe.mode): probe.batch for probe in probes(("fp32",), size_factor=16)}

    assert {gpu[probe.name, probe.mode] // probe.batch for probe in CPU if probe.name.startswith("tiny")} == {1}
    assert gpu["net of bottlenecks", "inference"] == 16 * 8


def test_no_input_is_larger_than_a_gpu_has_to_spare() -> None:
    for probe in probes(("fp32",), size_factor=16):
        assert max(math.prod(shape) for shape in probe.shapes) * probe.batch <= 2**25


def test_every_probe_is_traced_with_formulas_for_all_it_does() -> None:
    for probe in CPU:
        loaded = LoadedModel(
            name=probe.name,
            model=probe.make(),
            make_inputs=lambda batch, probe=probe: (probe.inputs(batch), {}),  # type: ignore[misc]
            batch=probe.batch,
            batch_is_fixed=True,
            loss=None,
            optimizer=None,
            train_step=None,
            notes=(),
        )

        workload = trace(loaded, mode=probe.mode, batch=probe.batch)

        assert workload.unknown_ops == {}, probe.name
        assert workload.method == "fake", probe.name
        assert workload.rows, probe.name


def test_a_round_meets_every_family_that_nets_spend_their_time_in() -> None:
    names = " ".join(probe.name for probe in CPU[: len(CPU) // 2])

    for word in ("linear", "convolutions", "attention", "lstm", "norm", "softmax", "pool", "training", "tiny"):
        assert word in names
