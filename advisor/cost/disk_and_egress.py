"""Prices the disk of a machine and the data that leaves the cloud."""

from advisor.records.answer import Job
from advisor.records.billing import Billing


def storage_usd_per_month(provider: str, *, billing: Billing, job: Job) -> float | None:
    """Return the price of one machine's disk, larger where the weights need more; None if it is not known."""
    disk = billing.extra_costs.disks.get(provider)
    if billing.extras.storage_usd_per_month is not None or disk is None:
        return billing.extras.storage_usd_per_month
    return disk.usd_per_month * max(1.0, job.weight_bytes / disk.size_bytes)


def egress_usd(provider: str, *, billing: Billing, job: Job) -> float | None:
    """Return the price of taking the job's results out of the cloud; None if it is not known.

    Training takes the trained weights out once. The results of inference are not known: a label, or a whole image.
    """
    egress = billing.extra_costs.egress.get(provider)
    if billing.extras.egress_usd is not None or egress is None or job.mode == "inference":
        return billing.extras.egress_usd
    return max(0.0, job.weight_bytes - egress.free_bytes) / 1e12 * egress.usd_per_tb
