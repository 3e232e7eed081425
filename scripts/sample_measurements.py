"""Draws the sample of measurements that the tests use.

    python scripts/sample_measurements.py --measured tests/data/measured

Reads the tables of measurements and writes `sample.csv` beside them. The sample contains timm nets that the fit has not
seen (`scripts/fit.py` uses one in four), and a few models of each other source, which the fit has seen.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from fit import EVERY, FILES

TIMM_EVERY = 48
"""One in 48 of the timm nets that are not fitted is in the sample."""
MODELS = ("torchvision:resnet50", "torchvision:vgg16_bn", "torchvision:mobilenet_v2", "hf:neusight/", "hf:intel/")


def sampled(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of every table in `folder` that belong to the sample, unchanged."""
    for name in FILES:
        with (folder / name).open(newline="") as lines:
            yield from (row for row in csv.DictReader(lines) if is_sampled(row["model"]))


def is_sampled(model: str) -> bool:
    """Return whether the model belongs to the sample."""
    if model.startswith("timm:"):
        return crc32(model.partition("+")[0].encode()) % (EVERY * TIMM_EVERY) == 1
    return model.startswith(MODELS)


def main() -> None:
    """Write the sample beside the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    folder = parser.parse_args().measured
    rows = list(sampled(folder))
    with (folder / "sample.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
