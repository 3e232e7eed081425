"""The files in force in, the catalog out: from the cache where nothing changed, else parsed and checked."""

from collections.abc import Sequence
from pathlib import Path

import platformdirs

from advisor.catalog.cache import content_key, read_cached, write_cached
from advisor.catalog.overlay import layers
from advisor.records.price import Catalog


def load_catalog(*, profiles: Path | None = None, prices: Sequence[Path] = (), cwd: Path | None = None) -> Catalog:
    """All profiles and prices in force; `profiles` and `prices` are the user's own and win over ours, row by row.

    Raises `ProfileError` at the first value that cannot be right, `UsageError` for a file that is not there. `cwd` is
    the folder whose `advisor.yaml` counts (default: the current one).
    """
    in_force = layers(profiles=profiles, prices=prices, cwd=cwd or Path.cwd())
    folder = platformdirs.user_cache_path("advisor")
    key = content_key(file for layer in in_force for file in layer.files())
    catalog = read_cached(folder, key=key)
    if catalog is None:
        # A cached catalog needs neither the YAML parser nor the checks, so they are imported here.
        from advisor.catalog.parse import parse_catalog

        catalog = parse_catalog(in_force)
        write_cached(catalog, folder, key=key)
    return catalog
