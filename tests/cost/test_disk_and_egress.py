from dataclasses import replace

import pytest

from advisor.catalog.overlay import load_catalog
from advisor.cost.coverage import coverage
from advisor.cost.offer_terms import egress_usd, offer_terms, storage_usd_per_month
from advisor.launch.engines import skypilot
from advisor.records.billing import Billing, Disk, Egress, ExtraCosts, Extras
from advisor.records.price import PricedOffer
from tests.cost.toys import job, offer, price

DISK = Disk(size_bytes=100e9, usd_per_month=7.3, date="2026-01-01", source="by hand")
EGRESS = Egress(usd_per_tb=90.0, free_bytes=100e9, date="2026-01-01", source="by hand")
BILLING = Billing(extra_costs=ExtraCosts(disks={"acme": DISK}, egress={"acme": EGRESS}))
TRAINING = job(mode="training", trained_bytes=300e9)


def test_a_disk_grows_with_weights_that_it_would_not_hold() -> None:
    assert storage_usd_per_month("acme", billing=BILLING, job=job(weight_bytes=1e9)) == 7.3
    assert storage_usd_per_month("acme", billing=BILLING, job=job(weight_bytes=200e9)) == 14.6
    tuning = job(weight_bytes=200e9, trained_bytes=100e9)  # both files are on it
    assert storage_usd_per_month("acme", billing=BILLING, job=tuning) == pytest.approx(21.9)
    assert storage_usd_per_month("other", billing=BILLING, job=job()) is None


def test_trained_weights_leave_the_cloud_once_after_what_is_free() -> None:
    # 200 of 300 GB at $90 a terabyte.
    assert egress_usd("acme", billing=BILLING, job=TRAINING) == pytest.approx(18.0)
    assert egress_usd("acme", billing=BILLING, job=job(mode="training", trained_bytes=99e9)) == 0.0
    adapters = job(mode="training", weight_bytes=300e9, trained_bytes=1e8)  # the frozen weights stay
    assert egress_usd("acme", billing=BILLING, job=adapters) == 0.0
    assert egress_usd("other", billing=BILLING, job=TRAINING) is None
    assert egress_usd("acme", billing=BILLING, job=job(weight_bytes=300e9)) is None  # results of inference


def test_the_overlay_wins() -> None:
    own = replace(BILLING, extras=Extras(storage_usd_per_month=20.0, egress_usd=0.0))
    assert storage_usd_per_month("acme", billing=own, job=TRAINING) == 20.0
    assert egress_usd("acme", billing=own, job=TRAINING) == 0.0


def test_terms_and_coverage_have_what_is_known_of_a_rented_machine() -> None:
    rented, owned = (PricedOffer(offer=offer(tier=tier), price=price()) for tier in ("hyperscaler", "owned"))  # type: ignore[arg-type]
    terms = offer_terms([rented, owned], billing=BILLING, job=TRAINING)
    # Three disks for 300 GB at $7.3 a month of 2,628,000 s each.
    assert terms.storage_usd_per_s.tolist() == [pytest.approx(3 * 7.3 / 2_628_000), 0.0]
    assert terms.egress_usd.tolist() == [pytest.approx(18.0), 0.0]
    covered, _ = coverage(TRAINING, rented, billing=BILLING)
    assert {"storage", "egress"} <= set(covered)
    _, missing = coverage(job(), rented, billing=BILLING)
    assert "egress" in missing
    assert "storage" not in missing


def test_the_shipped_disks_are_about_as_large_as_the_task_file_asks_for() -> None:
    shipped = load_catalog().billing.extra_costs
    asked_bytes = skypilot._DISK_GB * 1e9
    assert {"aws", "azure", "gcp"} <= set(shipped.disks) & set(shipped.egress)
    assert all(asked_bytes <= disk.size_bytes < 1.4 * asked_bytes for disk in shipped.disks.values())
    assert all(one.source.count("https://") for one in (*shipped.disks.values(), *shipped.egress.values()))
