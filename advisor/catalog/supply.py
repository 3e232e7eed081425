"""Applies the user's quotas and waiting times to offers.

quota:                      # the most you may run at once; the first line that matches an offer counts
  - {provider: aws, family: g5, vcpus: 32}
  - {provider: gcp, gpus: 1}
availability:               # time from the request of a machine to its start
  - {provider: aws, region: us-east-1, family: p5, wait_minutes: 90}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.catalog.fields import read_count, read_number
from advisor.catalog.scope import Scope, read_lines
from advisor.catalog.strict_yaml import Document, KeyPath
from advisor.records.price import Offer

_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most vCPUs or GPUs that may run at once on the offers in `scope`; None means no limit is given."""

    scope: Scope
    vcpus: int | None
    gpus: int | None

    def instances(self, offer: Offer) -> int | None:
        """Return how many of the offer's machines the quota allows, or None if it does not limit them."""
        limit, needed = (self.vcpus, offer.vcpus) if self.vcpus is not None else (self.gpus, offer.gpu_count)
        return limit // needed if limit is not None and needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The waiting time for an offer in `scope`."""

    scope: Scope
    wait_s: float


def with_supply(offer: Offer, *, quotas: Sequence[Quota], availabilities: Sequence[Availability]) -> Offer:
    """Return the offer with its quota and waiting time, each from the first line that matches."""
    allowed = (quota.instances(offer) for quota in quotas if quota.scope.fits(offer))
    quota_instances = next((count for count in allowed if count is not None), None)
    wait_s = next((one.wait_s for one in availabilities if one.scope.fits(offer)), None)
    if quota_instances is None and wait_s is None:
        return offer
    return replace(offer, quota_instances=quota_instances, wait_s=wait_s)


def read_quotas(document: Document, value: Any) -> tuple[Quota, ...]:
    """Read the lines under `quota`."""
    example = "{provider: aws, family: g5, vcpus: 32}"
    return read_lines(document, "quota", value, read=_read_quota, keys=("vcpus", "gpus"), example=example)


def read_availabilities(document: Document, value: Any) -> tuple[Availability, ...]:
    """Read the lines under `availability`."""
    example = "{provider: aws, family: p5, wait_minutes: 90}"
    return read_lines(document, "availability", value, read=_read_availability, keys=("wait_minutes",), example=example)


def _read_quota(document: Document, path: KeyPath, values: Mapping[str, Any], scope: Scope) -> Quota:
    given = [key for key in ("vcpus", "gpus") if key in values]
    if len(given) != 1:
        found = "vcpus and gpus are both given" if given else "neither vcpus nor gpus is given"
        raise document.error(
            path, found, hint="give one of them, as in `vcpus: 32` or `gpus: 1`: the most you may run at once"
        )
    (key,) = given
    limit = read_count(document, (*path, key), values[key], quantity=key, zero_allowed=True)
    return Quota(scope=scope, vcpus=limit if key == "vcpus" else None, gpus=limit if key == "gpus" else None)


def _read_availability(document: Document, path: KeyPath, values: Mapping[str, Any], scope: Scope) -> Availability:
    if "wait_minutes" not in values:
        hint = "add `wait_minutes: 90`, or 0 for no waiting time"
        raise document.error(path, "wait_minutes is missing", hint=hint)
    minutes = read_number(
        document, (*path, "wait_minutes"), values["wait_minutes"], quantity="wait_minutes", zero_allowed=True
    )
    return Availability(scope=scope, wait_s=minutes * _SECONDS_PER_MINUTE)
