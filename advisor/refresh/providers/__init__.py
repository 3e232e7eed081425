"""Finds the modules that fetch prices: one file per provider.

`LISTS` and `KINDS` of a module say in docs/prices.md what it reads and which prices it finds.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from advisor.errors import UsageError, did_you_mean


def provider_module(provider: str) -> ModuleType:
    """Return the module that fetches the provider's prices; raise `UsageError` if there is none."""
    by_provider = _modules()
    if provider not in by_provider:
        hint = did_you_mean(provider, by_provider)
        raise UsageError(f"the prices of {provider!r} cannot be fetched", hint=hint)
    return by_provider[provider]


def providers() -> tuple[str, ...]:
    """Return the providers whose prices can be fetched, sorted."""
    return tuple(sorted(_modules()))


def api_keys() -> dict[str, str]:
    """Return the environment variable with the API key of each provider that needs one."""
    keys = {provider: getattr(module, "KEY_VARIABLE", "") for provider, module in sorted(_modules().items())}
    return {provider: key for provider, key in keys.items() if key}


def _modules() -> dict[str, ModuleType]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return {module.PROVIDER: module for module in modules}
