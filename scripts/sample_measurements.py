"""Draw the sample that `make test` validates: tables of measurements in, tests/data/measured/sample.csv out.

`python scripts/sample_measurements.py --measured tests/data/measured`. Of timm's nets it takes such as no fit has seen
(`scripts/fit.py` takes one in four); of the other sources a few models each, which the fit has seen.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from fit import EVERY, FILES

NETS_APART = 48
MODELS = ("torchvision:resnet50", "torchvision:vgg16_bn", "torchvision:mobilenet_v2", "hf:neusight/", "hf:intel/")


def sampled(folder: Path) -> Iterator[dict[str, str]]:
    """The rows of every table in `folder` that belong to the sample, as they stand there."""
    for name in FILES:
        with (folder / name).open(newline="") as lines:
            yield from (row for row in csv.DictReader(lines) if is_sampled(row["model"]))


def is_sampled(model: str) -> bool:
    """One in so many of the nets that are not fitted."""
    if model.startswith("timm:"):
        return crc32(model.encode()) % (EVERY * NETS_APART) == 1
    return model.startswith(MODELS)


def main() -> None:
    """Write the sample beside the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    folder = parser.parse_args().measured
    rows = list(sampled(folder))
    with (folder / "sample.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
