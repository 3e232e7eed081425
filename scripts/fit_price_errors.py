"""Fits how far listed prices are off, to dated prices of the same offers; writes profiles/price_errors.yaml.

    python scripts/fit_price_errors.py

The squared logarithm of a price change is fitted, by least squares over all pairs of snapshots of a tier, as a drift
times the years between them plus the error of the list that the earlier price comes from. A third party's list is
compared with later prices from the providers themselves. The table of the changes goes into docs/prices.md.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from left_out_spread import rms

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOTS = ROOT / "scripts" / "data" / "price_snapshots.csv"
FILE = ROOT / "profiles" / "price_errors.yaml"
PAGE = ROOT / "docs" / "prices.md"
MARK = "<!-- price changes: scripts/fit_price_errors.py -->"
DAYS_PER_YEAR = 365
BASIS_OF = {
    ("hyperscaler", "aws-list"): "list",
    ("neocloud", "gpu-price-feed"): "list",
    ("neocloud", "gpu-pricing"): "published",
    ("marketplace", "gpu-price-feed"): "median_live_offer",
    ("marketplace", "gpu-pricing"): "minimum_live_offer",
}
"""The kind of price that each source lists for a tier. The feed reads the providers' own APIs and pages."""
ASKED = {
    "list": "the provider's own list",
    "published": "a third party's list of the provider's page",
    "median_live_offer": "live offers from the provider's own API",
    "minimum_live_offer": "live offers in a third party's list",
}
SPOT = "no dated spot prices are known; that of marketplaces, where demand moves the prices too"
HEAD = """\
# How far a listed price may be off: standard deviations of the logarithm of the price to pay over the price listed.
# Written by scripts/fit_price_errors.py from scripts/data/price_snapshots.csv, except `trusted`, which is a choice.
#
# drift: after one year, by tier, and of spot prices in any tier; the variance grows with the age. listing: by how the
# price was obtained, at any age. The variances of both add up. trusted: the error up to which a price may head the
# answer, counted to the newest price.
"""


class Change(NamedTuple):
    """Two prices of one offer."""

    tier: str
    days: int
    basis: str
    log_ratio: float


def changes() -> Iterator[Change]:
    """Yield every pair of dated prices of the same offer, the earlier first."""
    by_offer: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with SNAPSHOTS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            by_offer[row["tier"], row["provider"], row["offer"]].append(row)
    for (tier, _, _), rows in by_offer.items():
        for first, last in combinations(sorted(rows, key=lambda row: row["date"]), 2):
            days = (date.fromisoformat(last["date"]) - date.fromisoformat(first["date"])).days
            log_ratio = math.log(float(last["usd_per_hour"]) / float(first["usd_per_hour"]))
            yield Change(tier, days, BASIS_OF[tier, first["source"]], log_ratio)


def fitted(found: list[Change]) -> tuple[dict[str, tuple[float, int]], dict[str, tuple[float, int]]]:
    """Return the drift by tier and the error by basis, with their numbers of changes; a provider's list has none."""
    drift, listing = {}, {"list": (0.0, sum(one.basis == "list" for one in found))}
    for tier in dict.fromkeys(one.tier for one in found):
        of_tier = [one for one in found if one.tier == tier]
        bases = sorted({one.basis for one in of_tier} - {"list"})
        terms = [[one.days / DAYS_PER_YEAR, *(one.basis == basis for basis in bases)] for one in of_tier]
        squares = [one.log_ratio**2 for one in of_tier]
        variances, *_ = np.linalg.lstsq(np.array(terms, dtype=np.float64), np.array(squares), rcond=None)
        deviations = np.sqrt(np.maximum(variances, 0.0)).tolist()
        drift[tier] = (deviations[0], len(of_tier))
        listing |= {
            basis: (deviation, sum(one.basis == basis for one in of_tier))
            for basis, deviation in zip(bases, deviations[1:], strict=True)
        }
    return drift, listing


def table(found: list[Change]) -> str:
    """Return the changes by tier, list and age as a Markdown table."""
    groups: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for one in found:
        groups[one.tier, one.basis, one.days].append(one.log_ratio)
    lines = [
        "| tier | earlier price from | days | prices | changed | std. dev. of the log ratio |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for (tier, basis, days), logs in sorted(groups.items()):
        changed = sum(abs(log) > 1e-3 for log in logs)
        lines.append(
            f"| {tier} | {ASKED[basis]} | {days} | {len(logs)} | {changed} | {rms(logs):.1%} |".replace("%", " %")
        )
    return "\n".join(lines)


def main() -> None:
    """Write the file and the table."""
    found = list(changes())
    source = "dated prices of the same offers, scripts/data/price_snapshots.csv"
    lines = [HEAD]
    drift, listing = fitted(found)
    for name, values in (("drift", drift), ("listing", listing)):
        lines.append(f"{name}:\n")
        lines += [
            f'  {key}: {{log_spread: {spread:.3f}, n: {count}, basis: measured, source: "{source}"}}\n'
            for key, (spread, count) in values.items()
        ]
        if values is drift:
            lines.append(
                f'  spot: {{log_spread: {drift["marketplace"][0]:.3f}, n: 0, basis: assumed, source: "{SPOT}"}}\n'
            )
    lines.append(
        "trusted: {log_spread: 0.058, n: 0, basis: assumed, source: "
        '"90 % of such prices are within 10 % of the price to pay: exp(1.645 x 0.058) = 1.1"}\n'
    )
    FILE.write_text("".join(lines), encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    _, _, after = rest.partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n{table(found)}\n{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
