"""Quota and availability by the user's overlay."""

from dataclasses import replace

import pytest
from hypothesis import given

from advisor.catalog.strict_yaml import parse_documents
from advisor.catalog.terms import apply_terms, is_of_family, joined_terms, read_terms
from advisor.errors import ProfileError
from advisor.records.price import Offer
from tests.catalog.test_terms import G5, G5_EU, N1, OFFERS, SCOPES

TWO_GPUS = replace(N1, id="gcp/us-central1/a2", instance="a2-highgpu-2g", gpu="a100", gpu_count=2, vcpus=24)


def applied(*texts: str) -> dict[str, Offer]:
    documents = [document for text in texts for document in parse_documents(text, label="advisor.yaml")]
    terms = joined_terms([read_terms(document) for document in documents])
    return {one.id: one for one in apply_terms(terms, [*OFFERS, TWO_GPUS], rejected=())}


def quotas(*texts: str) -> dict[str, int | None]:
    return {identifier: offer.quota_instances for identifier, offer in applied(*texts).items()}


def test_a_quota_of_vcpus_is_of_whole_machines() -> None:
    # G5 has 4 vCPUs: 15 are 3 of it.
    found = quotas("quota: [{provider: aws, family: g5, region: US, vcpus: 15}]")
    assert found[G5.id] == 3
    assert {count for identifier, count in found.items() if identifier != G5.id} == {None}


def test_a_quota_of_gpus_says_nothing_of_machines_without() -> None:
    # 5 GPUs are two machines of 2.
    found = quotas("quota: [{provider: gcp, gpus: 5}]")
    assert (found[TWO_GPUS.id], found[N1.id]) == (2, None)


def test_a_quota_of_vcpus_says_nothing_where_nobody_knows_how_many_there_are() -> None:
    unknown = replace(G5, vcpus=None)
    (document,) = parse_documents("quota: [{vcpus: 8}]", label="advisor.yaml")
    assert apply_terms(read_terms(document), [unknown], rejected=()) == [unknown]


def test_none_at_all_is_a_quota_too() -> None:
    assert quotas("quota: [{provider: gcp, gpus: 0}]")[TWO_GPUS.id] == 0


def test_of_the_lines_that_fit_the_first_counts_also_over_files() -> None:
    assert quotas("quota: [{gpus: 9}, {family: g5, vcpus: 4}, {vcpus: 40}]", "quota: [{vcpus: 400}]")[G5.id] == 1


def test_a_wait_is_in_minutes() -> None:
    found = applied("availability: [{family: g5, region: EU, wait_minutes: 90}, {provider: gcp, wait_minutes: 0}]")
    assert [found[offer.id].wait_s for offer in (G5_EU, N1, G5)] == [5400.0, 0.0, None]


@given(scope=SCOPES.map(lambda scope: {key: name for key, name in scope.items() if key != "commitment"}))
def test_a_line_changes_only_the_offers_that_it_names(scope: dict[str, str]) -> None:
    line = "".join(f'{key}: "{value}", ' for key, value in scope.items())
    after = applied(f"quota: [{{{line}vcpus: 4}}]\navailability: [{{{line}wait_minutes: 1}}]")
    for before in (*OFFERS, TWO_GPUS):
        now = after[before.id]
        is_named = (
            scope.get("provider", before.provider) == before.provider
            and scope.get("region", before.region) in (before.region, before.geo)
            and ("family" not in scope or is_of_family(before.instance, scope["family"]))
        )
        assert now == (replace(before, quota_instances=4 // before.vcpus, wait_s=60.0) if is_named else before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quota: {aws: 3}", "advisor.yaml:1: quota: expected a list, found {'aws': 3}"),
        ("quota: [{provider: aws}]", "advisor.yaml:1: quota.0: neither vcpus nor gpus is given"),
        ("quota: [{vcpus: 8, gpus: 1}]", "advisor.yaml:1: quota.0: vcpus and gpus are both given"),
        ("quota:\n  - {vcpus: 1.5}", "advisor.yaml:2: quota.0.vcpus: expected a whole number, found 1.5"),
        ("quota: [{instances: 3}]", "advisor.yaml:1: quota.0.instances: unknown key"),
        ("quota: [{provider: asw, vcpus: 8}]", "advisor.yaml:1: quota.0.provider: no offer has provider 'asw'"),
        ("availability: [{provider: aws}]", "advisor.yaml:1: availability.0: wait_minutes is missing"),
        ("availability: [{wait_minutes: -1}]", "availability.0.wait_minutes: expected a number that is 0 or more"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        applied(text)
    assert message in caught.value.message
