"""Builds pretrained models of transformers, timm and torchvision without their weights, which a trace does not need.

The libraries are patched when the user's code imports them. Models of transformers are built from their configs alone.
"""

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from advisor.errors import LoadError
from advisor.workload.import_hooks import PatchesOf, patched_on_import
from advisor.workload.model_config import find_config
from advisor.workload.no_network import NoNetworkError
from advisor.workload.patching import Patch, patched
from advisor.workload.sources.python_file import build_without_weights
from advisor.workload.user_error import NO_NETWORK_HINT, passes_arguments_on, place_now

_CONFIG_FILE = "config.json"
_OF_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
_OF_OTHER_WEIGHTS = ("state_dict", "gguf_file")
_LOADING_INFO = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
_QUANTIZED = ("quantization_config", "load_in_8bit", "load_in_4bit")


class _NoWeights(dict[str, Any]):
    """The content of a weights file that was not read: every key has the same empty content."""

    def __missing__(self, _: str) -> "_NoWeights":
        return self

    def __delitem__(self, _: str) -> None:
        pass

    def pop(self, *_: Any) -> "_NoWeights":
        return self


@contextmanager
def weights_left_out() -> Iterator[list[str]]:
    """Build pretrained models inside without weights; give the list of notes on them, each with the user's line."""
    notes: list[str] = []

    def note(what: str) -> None:
        text = f"{what}: built without its pretrained weights ({place_now()})"
        if text not in notes:
            notes.append(text)

    modules: dict[str, PatchesOf] = {
        "timm.models._builder": lambda module: _timm(module, note),
        "timm.models._factory": _timm_ids,
        "torchvision.models._api": lambda module: _torchvision(module, note),
        "transformers.configuration_utils": _configs,
        "transformers.modeling_utils": lambda module: _transformers(module, note),
        "transformers.tokenization_utils_base": _tokenizers,
    }
    with (
        warnings.catch_warnings(),
        patched(_torch(note), in_all_threads=True),
        patched_on_import(modules),
    ):
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # copying a fake model
        yield notes


def _torch(note: Callable[[str], None]) -> Iterator[Patch]:
    load = nn.Module.load_state_dict

    @passes_arguments_on
    def load_state_dict(module: nn.Module, state_dict: Any, *args: Any, **settings: Any) -> Any:
        if not state_dict:  # made from `_NoWeights`
            return _IncompatibleKeys([], [])
        return load(module, state_dict, *args, **settings)

    def load_from_url(url: str, *_: Any, **__: Any) -> _NoWeights:
        note(url.rpartition("/")[2])
        return _NoWeights()

    yield nn.Module, "load_state_dict", load_state_dict
    yield torch.hub, "load_state_dict_from_url", load_from_url


def _torchvision(module: Any, note: Callable[[str], None]) -> Iterator[Patch]:
    def get_state_dict(weights: Any, *_: Any, **__: Any) -> _NoWeights:
        note(str(weights))
        return _NoWeights()

    yield module.WeightsEnum, "get_state_dict", get_state_dict


def _timm(module: Any, note: Callable[[str], None]) -> Iterator[Patch]:
    def load_pretrained(model: nn.Module, pretrained_cfg: Any = None, *_: Any, **__: Any) -> None:
        config = pretrained_cfg or getattr(model, "pretrained_cfg", None) or {}
        note(f"timm's {config.get('architecture') or type(model).__name__}")

    yield module, "load_pretrained", load_pretrained


def _timm_ids(module: Any) -> Iterator[Patch]:
    """Take `hf-hub:timm/NAME` for the NAME of timm's own registry, which has the same configs."""
    parse = module.parse_model_name

    def parsed(model_name: str) -> Any:
        source, reference = parse(model_name)
        name = reference.removeprefix("timm/").partition("@")[0]
        is_own = source == "hf-hub" and reference.startswith("timm/") and module.is_model(name.partition(".")[0])
        return (None, name) if is_own else (source, reference)

    yield module, "parse_model_name", parsed


def _configs(module: Any) -> Iterator[Patch]:
    """Read configs from where `hf:` finds them, before transformers looks for other revisions and files."""
    cached_file = module.cached_file

    def found(path_or_repo_id: Any, filename: str, **settings: Any) -> Any:
        unknown = None
        elsewhere = [settings.get(key) for key in ("cache_dir", "subfolder")]
        if filename == _CONFIG_FILE and not any(elsewhere) and settings.get("revision") in (None, "main"):
            try:
                path = find_config(str(path_or_repo_id))
                if path.is_file():
                    return str(path)
            except LoadError as error:
                unknown = error
        try:
            return cached_file(path_or_repo_id, filename, **settings)
        except OSError:
            if unknown is None:
                raise
            raise NoNetworkError(f"{place_now()}: {unknown.message}", hint=unknown.hint) from None

    yield module, "cached_file", found


def _tokenizers(module: Any) -> Iterator[Patch]:
    """Refuse a tokenizer whose files are not on this disk: release 5 of transformers would make an empty one."""
    kind = module.PreTrainedTokenizerBase
    load = kind._from_pretrained.__func__

    def from_pretrained(cls: Any, /, files: dict[str, Any], reference: Any, *args: Any, **settings: Any) -> Any:
        if cls.vocab_files_names and not any(files.get(name) for name in (*cls.vocab_files_names, "tokenizer_file")):
            raise NoNetworkError(
                f"{place_now()}: the tokenizer of {reference} is not on this disk", hint=NO_NETWORK_HINT
            )
        return load(cls, files, reference, *args, **settings)

    yield kind, "_from_pretrained", classmethod(from_pretrained)


def _transformers(module: Any, note: Callable[[str], None]) -> Iterator[Patch]:
    kind = module.PreTrainedModel
    load = kind.from_pretrained.__func__

    def from_pretrained(
        cls: Any, /, pretrained_model_name_or_path: Any, *args: Any, config: Any = None, **settings: Any
    ) -> Any:
        reference = pretrained_model_name_or_path
        if args or reference is None or any(settings.get(name) is not None for name in _OF_OTHER_WEIGHTS):
            return load(cls, reference, *args, config=config, **settings)
        of_hub = {name: settings.pop(name) for name in _OF_HUB if name in settings}
        wants_info = settings.pop("output_loading_info", False)
        quantized = [settings.pop(name, None) for name in _QUANTIZED]
        dtypes = [settings.pop(name, None) for name in ("dtype", "torch_dtype")]
        if hasattr(config, "to_dict"):
            config = copy.deepcopy(config)
        else:
            config, settings = cls.config_class.from_pretrained(
                reference if config is None else config, return_unused_kwargs=True, **of_hub, **settings
            )
        # The others, such as `device_map`, concern how weights are loaded.
        of_model = {name: settings[name] for name in inspect.signature(cls).parameters if name in settings}
        _set_dtype(config, next((one for one in dtypes if one is not None), None))
        attention = settings.pop("attn_implementation", None) or getattr(config, "_attn_implementation", None)
        if attention is not None:
            is_flash = str(attention).startswith("flash_attention")  # needs a GPU; torch's has the same FLOP and bytes
            of_model["attn_implementation"] = "sdpa" if is_flash else attention
        config.name_or_path = str(reference)
        model = build_without_weights(lambda: cls._from_config(config, **of_model)).eval()
        is_quantized = any(quantized) or getattr(config, "quantization_config", None) is not None
        note(f"{reference}, in 16 or 32 bits instead of its quantized form" if is_quantized else str(reference))
        loaded: dict[str, list[str]] = {name: [] for name in _LOADING_INFO}
        return (model, loaded) if wants_info else model

    yield kind, "from_pretrained", classmethod(from_pretrained)


def _set_dtype(config: Any, asked: Any) -> None:
    """Set the dtype of the model to build, as the installed transformers chooses it: from release 5 on the config's."""
    from transformers import __version__

    name = "dtype" if hasattr(config, "dtype") else "torch_dtype"
    takes_own = asked == "auto" or (asked is None and int(__version__.partition(".")[0]) >= 5)
    dtype = getattr(config, name, None) if takes_own else asked
    setattr(config, name, getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.float32)
