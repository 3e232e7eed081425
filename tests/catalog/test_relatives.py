"""Which CPUs stand in for one without a profile."""

from dataclasses import replace

from advisor.catalog.find import _GENERATIONS, generation_of, relatives_of, vendor_of, with_usual_cores
from advisor.records.price import Catalog

AVX512 = ("avx2", "avx512f")
AMX = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def test_every_generation_it_knows_is_one_of_a_profile(shipped: Catalog) -> None:
    assert {*_GENERATIONS.values(), "Cascade Lake", "Skylake-SP"} <= {cpu.generation for cpu in shipped.cpus.values()}


def test_a_signature_names_generation_and_vendor() -> None:
    assert generation_of("AuthenticAMD 26 2", isa=()) == "Zen 5 Turin"
    assert vendor_of("AuthenticAMD 26 2") == "AMD"
    assert (generation_of("0x41 0xd4f", isa=()), vendor_of("0x41 0xd4f")) == ("Neoverse V2", None)
    assert (generation_of(None, isa=()), vendor_of(None)) == (None, None)


def test_skylake_and_cascade_lake_differ_by_their_instruction_sets() -> None:
    assert generation_of("GenuineIntel 6 85", isa=AVX512) == "Skylake-SP"
    assert generation_of("GenuineIntel 6 85", isa=(*AVX512, "avx512_vnni")) == "Cascade Lake"


def test_relatives_are_of_the_same_generation_where_there_are_three(shipped: Catalog) -> None:
    found, words = relatives_of(shipped.cpus, signature="AuthenticAMD 26 2", isa=("avx2", "avx512f", "avx512_bf16"))

    assert len(found) >= 3
    assert {cpu.generation for cpu in found} == {"Zen 5 Turin"}
    assert words == "of the Zen 5 Turin generation"


def test_a_generation_of_fewer_than_three_is_not_enough(shipped: Catalog) -> None:
    known = [cpu for cpu in shipped.cpus.values() if cpu.generation == "Neoverse N2"]

    found, words = relatives_of(shipped.cpus, signature="0x41 0xd49", isa=("asimd", "sve"))

    assert 1 <= len(known) < 3 <= len(found)
    assert words == "with sve"


def test_an_unknown_generation_takes_the_vendors_cpus_with_the_same_widest_set(shipped: Catalog) -> None:
    found, words = relatives_of(shipped.cpus, signature="GenuineIntel 6 999", isa=AMX)

    assert {cpu.vendor for cpu in found} == {"Intel"}
    assert all("amx_bf16" in cpu.isa for cpu in found)
    assert words == "by Intel with amx_bf16"


def test_an_unknown_vendor_takes_any_with_the_same_widest_set(shipped: Catalog) -> None:
    found, words = relatives_of(shipped.cpus, signature=None, isa=("asimd",))

    assert len(found) >= 3
    assert not any("sve" in cpu.isa for cpu in found)
    assert words == "with asimd"


def test_an_instruction_set_of_no_profile_has_no_relatives(shipped: Catalog) -> None:
    assert relatives_of(shipped.cpus, signature=None, isa=("rvv",)) == ((), "")


def test_a_core_never_has_more_than_the_usual_l3_of_its_generation(shipped: Catalog) -> None:
    # Four CPUs of 260 to 320 MiB, of one generation; their shares of a core: 5, 4, 8 -> the median is 5 MiB.
    mib, xeon = 2**20, shipped.cpus["intel-xeon-platinum-8580"]
    known = {
        name: replace(xeon, id=name, l3_bytes=l3_mib * mib, cores_per_socket=cores)
        for name, l3_mib, cores in (("a", 300, 60), ("b", 240, 60), ("c", 320, 40), ("d", 261, None))
    }
    assert with_usual_cores(known)["d"].cores_per_socket == 53  # 261 / 5 = 52.2
    other = replace(known["d"], generation="another")
    assert with_usual_cores(known | {"d": other})["d"].cores_per_socket == 53  # all CPUs have the same median
    assert with_usual_cores({"d": known["d"]}) == {"d": known["d"]}  # nothing to compare with
