"""Writes the tables of docs/language-models.md with times per output token: by weight format, and with drafts.

python scripts/write_serving_tables.py
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from write_seed_table import ROOT, with_table

from advisor import units
from advisor.answers.ranking import rank
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.generation import WeightFormat
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload

PAGE = ROOT / "docs" / "language-models.md"
END = "<!-- end of the table -->"
WEIGHT_MARKS = "<!-- weights: written by scripts/write_serving_tables.py -->", END
DRAFT_MARKS = "<!-- drafts: written by scripts/write_serving_tables.py -->", END
MODEL = ROOT / "examples" / "configs" / "llama3_8b.json"
MACHINES = {
    "a2-ultragpu-1g": "A100 SXM4 80GB (gcp a2-ultragpu-1g)",
    "g6e.xlarge": "L40S (aws g6e.xlarge)",
    "p5.4xlarge": "H100 SXM5 80GB (aws p5.4xlarge)",
    "p6-b200.48xlarge": "B200 (one of aws p6-b200.48xlarge)",
    "Standard_D64s_v6": "Intel Xeon 8573C (azure Standard_D64s_v6, 64 vCPUs)",
    "Standard_D64as_v6": "AMD EPYC 9V74 (azure Standard_D64as_v6, 64 vCPUs)",
}
DRAFTED_MACHINES = ("g6e.xlarge", "p5.4xlarge", "Standard_D64s_v6", "Standard_D64as_v6")
FORMATS: tuple[WeightFormat, ...] = ("bf16", "fp8", "int8", "int4", "nf4", "nvfp4")
IN_FLIGHT, DRAFTED_IN_FLIGHT = (1, 16, 128), (1, 8, 32, 128)
SERVICE = Options(no_local=True, prompt_tokens=1024, output_tokens=256, max_gpus=1)
DRAFTED_SERVICE = replace(SERVICE, draft_tokens=4, acceptance_rate=0.7, draft_cost=0.04)


def tpot_ms(
    workload: Workload, options: Options, *, instance: str, in_flight: Sequence[int], catalog: Catalog
) -> list[str]:
    """Return the times per output token in milliseconds; none if the instance has no kernels for the weights."""
    asked = replace(options, instance=(instance,), concurrency=",".join(map(str, in_flight)))
    sweeps = rank(question_of(workload, asked, catalog=catalog)).batch_sweeps
    points = next((sweep.points for sweep in sweeps if sweep.instance == instance), ())
    found = {point.batch: point.tpot_s for point in points if point.tpot_s is not None}
    return [units.format_significant(found[count] * 1e3) for count in in_flight] if found else []


def weight_table(workload: Workload, catalog: Catalog) -> str:
    """Return a line for each machine, with the times in each format of the weights."""

    def times(instance: str, weights: WeightFormat) -> str:
        options = replace(SERVICE, weights=weights)
        return ", ".join(tpot_ms(workload, options, instance=instance, in_flight=IN_FLIGHT, catalog=catalog)) or "-"

    rows = ([name, *(times(instance, one) for one in FORMATS)] for instance, name in MACHINES.items())
    return _table(["Llama 3 8B, 1,024 + 256 tokens", *FORMATS], rows)


def draft_table(workload: Workload, catalog: Catalog) -> str:
    """Return a line for each machine, with the times without and with drafts."""

    def times(instance: str) -> list[str]:
        plain, drafted = (
            tpot_ms(workload, options, instance=instance, in_flight=DRAFTED_IN_FLIGHT, catalog=catalog)
            for options in (SERVICE, DRAFTED_SERVICE)
        )
        return [f"{before} -> {after}" for before, after in zip(plain, drafted, strict=True)]

    rows = ([MACHINES[instance], *times(instance)] for instance in DRAFTED_MACHINES)
    return _table(["in flight", *map(str, DRAFTED_IN_FLIGHT)], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    shipped = catalog_of(Options())
    traced = profile_source(f"hf:{MODEL}", SERVICE).workload
    page = PAGE.read_text(encoding="utf-8")
    page = with_table(page, weight_table(traced, shipped), marks=WEIGHT_MARKS)
    page = with_table(page, draft_table(traced, shipped), marks=DRAFT_MARKS)
    PAGE.write_text(page, encoding="utf-8")
