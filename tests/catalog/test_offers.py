from collections.abc import Mapping
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.device_files import MeasuredInstance
from advisor.catalog.offers import Known, build_offers
from advisor.catalog.price_files import PriceRow, read_price_rows
from advisor.catalog.strict_yaml import parse_documents
from advisor.errors import ProfileError
from advisor.records.device import Gpu
from advisor.records.price import Offer
from advisor.records.rejection import Rejection

A100 = Gpu(
    id="a100",
    name="A100",
    vendor="NVIDIA",
    generation="Ampere",
    sm_count=108,
    boost_hz=1.41e9,
    memory_bytes=80 * 2**30,
    memory_bytes_per_s=2e12,
    fp32_flops_per_s=19.5e12,
    source="datasheet",
)
KNOWN = Known(
    gpu_ids={"l4": "l4", "L4": "l4", "a10g": "a10g"},
    cpu_ids={"epyc": "epyc", "AMD EPYC 7R13 Processor": "epyc"},
    rented_gpu=lambda name: A100 if name == "NVIDIA A100 80GB" else None,
    measured={
        ("aws", "c6a.large"): MeasuredInstance(
            cpu="AMD EPYC 7R13 Processor", threads_per_core=2, read_bytes_per_s=20e9
        ),
        ("aws", "n4.large"): MeasuredInstance(cpu="GENUINE INTEL(R) 0000"),
        ("aws", "p3.large"): MeasuredInstance(vcpus=8, gpu="l4", gpu_count=2),
    },
)


def join(*machines: str, head: str = "provider: aws\ntier: neocloud") -> tuple[list[Offer], list[Rejection]]:
    """Types `NAME: {machine...}` at 1 dollar an hour in one region."""
    instances = "\n".join(
        "  {}:\n    machine: {}\n    usd_per_hour: {{eu: {{on_demand: 1}}}}".format(*machine.split(": ", 1))
        for machine in machines
    )
    text = f"{head}\ndate: 2026-09-01\ninstances:\n{instances}\n"
    rows = [row for document in parse_documents(text, label="prices.yaml") for row in read_price_rows(document)]
    joined = build_offers(rows, known=KNOWN)
    assert [offer.id for offer in joined.unpredicted] == [rejection.id for rejection in joined.rejected]
    return joined.offers, joined.rejected


def test_a_machine_with_a_gpu_is_an_offer_without_more_being_known() -> None:
    (offer,), rejected = join("box: {gpu: L4, gpu_count: 4}")
    assert not rejected
    assert (offer.id, offer.gpu, offer.gpu_count, offer.cpu, offer.vcpus) == ("aws/eu/box", "l4", 4, None, None)
    assert offer.prices[0].usd_per_hour == 1.0


def test_a_price_per_gpu_is_multiplied_by_the_gpus_of_the_machine() -> None:
    (offer,), _ = join("box: {gpu: l4, gpu_count: 4}", head="provider: aws\ntier: neocloud\nprice_per: gpu")
    assert offer.prices[0].usd_per_hour == 4.0


def test_a_gpu_by_its_providers_own_name_is_an_offer_with_all_gpus_of_the_machine() -> None:
    head = "provider: aws\ntier: neocloud\nprice_per: gpu"
    (offer,), rejected = join("box: {accelerator: NVIDIA A100 80GB, gpu_count: 4}", head=head)
    assert not rejected
    assert (offer.gpu, offer.gpu_count, offer.prices[0].usd_per_hour) == ("a100", 4, 4.0)


def test_a_machine_without_a_gpu_is_joined_with_what_was_measured() -> None:
    (offer,), _ = join("c6a.large: {vcpus: 2, memory_gib: 4}")
    # 4 GiB = 4 x 2^30 = 4,294,967,296 bytes
    assert (offer.cpu, offer.gpu, offer.gpu_count, offer.memory_bytes) == ("epyc", None, 0, 4294967296.0)
    assert (offer.threads_per_core, offer.measured_read_bytes_per_s) == (2, 20e9)


def test_a_type_whose_gpus_only_the_inspection_knows_is_not_taken_for_a_cpu() -> None:
    (offer,), _ = join("p3.large: {}")
    assert (offer.gpu, offer.gpu_count, offer.vcpus) == ("l4", 2, 8)


def test_only_the_usable_vcpus_of_a_constrained_size_count() -> None:
    (offer,), _ = join("hb: {vcpus: 120, usable_vcpus: 16, memory_gib: 456, cpu: epyc}")
    assert offer.vcpus == 16


@pytest.mark.parametrize(
    ("machine", "code", "reason"),
    [
        ("trn1: {vcpus: 8, memory_gib: 32, cpu: epyc, accelerator: trainium}", "no-device-profile", "'trainium'"),
        ("g6f: {vcpus: 2, memory_gib: 8, gpu: l4, gpu_share: 1/8}", "fractional-gpu", "offers 1/8 of one l4"),
        ("n4.large: {vcpus: 2, memory_gib: 8}", "unknown-cpu", "'GENUINE INTEL(R) 0000' has no profile"),
        ("n4a.large: {vcpus: 2, memory_gib: 8}", "unknown-cpu", "its CPU is unknown"),
        ("c6a.large: {vcpus: 2}", "incomplete-machine", "memory unknown"),
        ("c6a.large: {}", "incomplete-machine", "vCPUs and memory unknown"),
    ],
)
def test_what_cannot_be_predicted_is_rejected_with_its_code_and_reason(machine: str, code: str, reason: str) -> None:
    offers, (rejection,) = join(machine)
    assert not offers
    assert rejection.code == code
    assert reason in rejection.reason


@pytest.mark.parametrize(
    ("machine", "message", "hint"),
    [
        ("box: {gpu: a10}", "prices.yaml:6: instances.box.machine.gpu: no profile describes the GPU 'a10'", "a10g?"),
        ("box: {cpu: epic}", "prices.yaml:6: instances.box.machine.cpu: no profile describes the CPU 'epic'", "epyc?"),
    ],
)
def test_a_file_that_names_an_unknown_device_is_refused(machine: str, message: str, hint: str) -> None:
    with pytest.raises(ProfileError) as caught:
        join(machine)
    assert caught.value.message == message
    assert hint in caught.value.hint


def test_a_new_provider_must_say_its_tier() -> None:
    with pytest.raises(ProfileError, match=r"prices\.yaml:1: provider: 'mine'"):
        join("box: {gpu: l4}", head="provider: mine")


def test_offers_are_in_the_order_of_their_ids_whatever_the_order_of_the_rows() -> None:
    forth, _ = join("a: {gpu: l4}", "b: {gpu: l4}")
    back, _ = join("b: {gpu: l4}", "a: {gpu: l4}")
    assert [offer.id for offer in forth] == ["aws/eu/a", "aws/eu/b"]
    assert back == forth


def rows_of(text: str, *, label: str = "prices.yaml") -> list[PriceRow]:
    return [row for document in parse_documents(text, label=label) for row in read_price_rows(document)]


def test_a_complete_list_lets_no_later_row_of_its_provider_win_but_takes_its_machines_from_them() -> None:
    lines = "instances: {box: {usd_per_hour: {eu: {on_demand: 1}}}}\n"
    complete = f"provider: aws\ncomplete: true\ndate: 2026-09-01\n{lines}"
    ours = (
        "provider: aws\ntier: neocloud\ndate: 2026-08-01\n"
        "instances: {box: {machine: {gpu: l4}, usd_per_hour: {eu: {on_demand: 2}, us: {on_demand: 2}}}}\n"
        "---\nprovider: other\ntier: neocloud\ndate: 2026-08-01\n"
        "instances: {box: {machine: {gpu: l4}, usd_per_hour: {us: {on_demand: 3}}}}\n"
    )
    offers = build_offers([*rows_of(complete), *rows_of(ours)], known=KNOWN).offers
    assert [(offer.id, offer.prices[0].usd_per_hour) for offer in offers] == [
        ("aws/eu/box", 1.0),
        ("other/us/box", 3.0),
    ]
    # Without the word, the row in the other region stays.
    partial = complete.replace("complete: true\n", "")
    offers = build_offers([*rows_of(partial), *rows_of(ours)], known=KNOWN).offers
    assert [offer.id for offer in offers] == ["aws/eu/box", "aws/us/box", "other/us/box"]


CELLS = [(instance, region) for instance in ("a", "b") for region in ("eu", "us")]


@given(st.dictionaries(st.sampled_from(CELLS), st.floats(0.1, 50.0), min_size=1))
def test_an_overlay_of_any_rows_changes_those_rows_and_no_other(own: dict[tuple[str, str], float]) -> None:
    def text(usd: Mapping[tuple[str, str], float], *, head: str, machine: str) -> str:
        instances = {instance for instance, _ in usd}
        body = "".join(
            f"  {instance}:\n{machine}    usd_per_hour:\n"
            + "".join(
                f"      {region}: {{on_demand: {paid!r}}}\n" for (of, region), paid in usd.items() if of == instance
            )
            for instance in sorted(instances)
        )
        return f"provider: aws\ndate: 2026-09-01\n{head}instances:\n{body}"

    ours = text(dict.fromkeys(CELLS, 60.0), head="tier: neocloud\n", machine="    machine: {gpu: l4}\n")
    before = build_offers(rows_of(ours), known=KNOWN).offers
    after = build_offers([*rows_of(text(own, head="", machine="")), *rows_of(ours)], known=KNOWN).offers
    for was, now in zip(before, after, strict=True):
        paid = own.get((was.instance, was.region))
        if paid is None:
            assert now == was
        else:
            assert (now.id, now.gpu, now.prices[0].usd_per_hour) == (was.id, was.gpu, paid)


def test_an_offer_that_cannot_be_predicted_keeps_its_prices_and_no_device() -> None:
    text = """
        provider: aws
        tier: hyperscaler
        price_per: gpu
        date: 2026-09-01
        instances:
          inf2:
            machine: {vcpus: 4, cpu: epyc, accelerator: inferentia2, gpu_count: 6}
            usd_per_hour: {eu: {spot: 1.5}}
    """
    (document,) = parse_documents(dedent(text), label="prices.yaml")
    (offer,) = build_offers(read_price_rows(document), known=KNOWN).unpredicted
    assert (offer.id, offer.cpu, offer.gpu) == ("aws/eu/inf2", None, None)
    assert [(price.kind, price.usd_per_hour) for price in offer.prices] == [("spot", 9.0)]  # 6 x 1.5
