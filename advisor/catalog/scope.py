"""Matches the names in a user's file with offers.

A family is the start of an instance's name up to a separator (g5 matches g5.xlarge, not g5g.xlarge), or a pattern with
*.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from advisor.catalog.strict_yaml import Node, did_you_mean
from advisor.records.price import Offer, Rejection

LineT = TypeVar("LineT")

SCOPE_KEYS = ("provider", "region", "family")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Names as the user wrote them: providers, regions or parts of the world, families. Empty means any."""

    provider: tuple[str, ...]
    region: tuple[str, ...]
    family: tuple[str, ...]
    node: Node

    def fits_by(self, offer: Offer) -> dict[str, bool]:
        """Return, for each key that is set, whether the offer matches one of its names."""
        region_names = (offer.region.lower(), offer.geo.lower())
        fits = {
            "provider": any(name.lower() == offer.provider for name in self.provider),
            "region": any(name.lower() in region_names for name in self.region),
            "family": any(is_of_family(offer.instance, name) for name in self.family),
        }
        return {key: fit for key, fit in fits.items() if getattr(self, key)}

    def fits(self, offer: Offer) -> bool:
        """Return True if the offer matches all keys that are set."""
        return all(self.fits_by(offer).values())


def is_of_family(instance: str, family: str) -> bool:
    """Return True if the family is the start of the instance's name up to a separator, or a matching pattern."""
    name, family = instance.lower(), family.lower()
    if "*" in family:
        return fnmatchcase(name, family)
    return name.startswith(family) and not name[len(family) : len(family) + 1].isalnum()


def read_scope(node: Node) -> Scope:
    """Read a scope: a mapping of its keys, each with one name or a list of names."""
    node.check_keys(SCOPE_KEYS)
    return _scope_of(node)


def _scope_of(node: Node) -> Scope:
    names = {key: _read_names(node.get(key, [])) for key in SCOPE_KEYS}
    return Scope(node=node, **names)


def _read_names(node: Node) -> tuple[str, ...]:
    """Read one name or a list of names."""
    items = node.value if isinstance(node.value, list) else [node.value]
    return tuple(replace(node, value=item).text() for item in items)


def read_lines(
    node: Node, *, read: Callable[[Node, Scope], LineT], keys: Collection[str], example: str
) -> tuple[LineT, ...]:
    """Read a list of lines, each with a scope and some of `keys`; `read` converts a line."""
    lines = []
    for line in node.items(hint=f"write `- {example}` lines"):
        line.check_keys((*SCOPE_KEYS, *keys))
        lines.append(read(line, _scope_of(line)))
    return tuple(lines)


def check_names(scopes: Sequence[Scope], *, offers: Sequence[Offer], rejected: Sequence[Rejection]) -> None:
    """Raise `ProfileError` for a name that matches no offer and no rejected offer, and so has no effect."""
    rows: list[Offer | Rejection] = [*offers, *rejected]
    known = {
        "provider": {row.provider for row in rows},
        "region": {row.region for row in rows} | {offer.geo for offer in offers},
    }
    folded = {key: {name.lower() for name in names} for key, names in known.items()}
    instances = {row.instance for row in rows}
    for scope in scopes:
        for key, names in known.items():
            for name in getattr(scope, key):
                if name.lower() not in folded[key]:
                    hint = did_you_mean(name, known=names)
                    raise scope.node[key].error(f"no offer has {key} {name!r}", hint=hint)
        for family in scope.family:
            if not any(is_of_family(instance, family) for instance in instances):
                hint = 'write the start of the names up to a separator (g5), or a pattern ("Standard_ND*")'
                raise scope.node["family"].error(f"no instance matches {family!r}", hint=hint)
