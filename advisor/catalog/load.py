"""Loads the catalog of the files in force, from the cache if nothing has changed."""

from collections.abc import Sequence
from pathlib import Path

import platformdirs

from advisor.catalog.cache import content_key, read_cached, write_cached
from advisor.catalog.overlay import layers
from advisor.records.price import Catalog


def load_catalog(*, profiles: Path | None = None, prices: Sequence[Path] = (), cwd: Path | None = None) -> Catalog:
    """Return all profiles and prices in force; the user's own `profiles` and `prices` win over the built-in ones.

    Raise `ProfileError` at the first invalid value, and `UsageError` for a missing file. `cwd` is the folder whose
    `advisor.yaml` is used (default: the current one).
    """
    in_force = layers(profiles=profiles, prices=prices, cwd=cwd or Path.cwd())
    folder = platformdirs.user_cache_path("advisor")
    key = content_key(file for layer in in_force for file in layer.files())
    catalog = read_cached(folder, key=key)
    if catalog is None:
        # Imported here, because a cached catalog needs neither the YAML parser nor the checks.
        from advisor.catalog.parse import parse_catalog

        catalog = parse_catalog(in_force)
        write_cached(catalog, folder, key=key)
    return catalog
