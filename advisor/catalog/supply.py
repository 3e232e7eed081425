"""What the user says of quota and availability in, how many of an offer can be had and how soon out.

quota:                      # what you may run at once; of those that fit an offer the first counts
  - {provider: aws, family: g5, vcpus: 32}
  - {provider: gcp, gpus: 1}
availability:               # from asking for a machine to having one
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
    """At most so many vCPUs, or GPUs, at once on the offers in `scope`; None: of these it says nothing."""

    scope: Scope
    vcpus: int | None
    gpus: int | None

    def instances(self, offer: Offer) -> int | None:
        """How many of the offer's machines it allows; None where it says nothing of them."""
        limit, needed = (self.vcpus, offer.vcpus) if self.vcpus is not None else (self.gpus, offer.gpu_count)
        return limit // needed if limit is not None and needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The time that one of the offers in `scope` is waited for."""

    scope: Scope
    wait_s: float


def with_supply(offer: Offer, *, quotas: Sequence[Quota], availabilities: Sequence[Availability]) -> Offer:
    """The offer with what the first line that fits it says of each."""
    allowed = (quota.instances(offer) for quota in quotas if quota.scope.fits(offer))
    quota_instances = next((count for count in allowed if count is not None), None)
    wait_s = next((one.wait_s for one in availabilities if one.scope.fits(offer)), None)
    if quota_instances is None and wait_s is None:
        return offer
    return replace(offer, quota_instances=quota_instances, wait_s=wait_s)


def read_quotas(document: Document, value: Any) -> tuple[Quota, ...]:
    """The lines under `quota`."""
    example = "{provider: aws, family: g5, vcpus: 32}"
    return read_lines(document, "quota", value, read=_read_quota, keys=("vcpus", "gpus"), example=example)


def read_availabilities(document: Document, value: Any) -> tuple[Availability, ...]:
    """The lines under `availability`."""
    example = "{provider: aws, family: p5, wait_minutes: 90}"
    return read_lines(document, "availability", value, read=_read_availability, keys=("wait_minutes",), example=example)


def _read_quota(document: Document, path: KeyPath, values: Mapping[str, Any], scope: Scope) -> Quota:
    given = [key for key in ("vcpus", "gpus") if key in values]
    if len(given) != 1:
        found = "vcpus and gpus in one line" if given else "neither vcpus nor gpus is given"
        raise document.error(path, found, hint="add `vcpus: 32`, or `gpus: 1`: what you may run at once")
    (key,) = given
    limit = read_count(document, (*path, key), values[key], quantity=key, zero_allowed=True)
    return Quota(scope=scope, vcpus=limit if key == "vcpus" else None, gpus=limit if key == "gpus" else None)


def _read_availability(document: Document, path: KeyPath, values: Mapping[str, Any], scope: Scope) -> Availability:
    if "wait_minutes" not in values:
        hint = "add `wait_minutes: 90`, or 0 for what can be had at once"
        raise document.error(path, "wait_minutes is missing", hint=hint)
    minutes = read_number(
        document, (*path, "wait_minutes"), values["wait_minutes"], quantity="wait_minutes", zero_allowed=True
    )
    return Availability(scope=scope, wait_s=minutes * _SECONDS_PER_MINUTE)
