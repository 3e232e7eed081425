import csv
import json
import os
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from advisor.errors import LoadError
from advisor.records.generation import Generation
from advisor.workload import trace_cache
from advisor.workload.dependencies import are_unchanged, recorded_dependencies
from advisor.workload.model_config import SHIPPED, find_config, hub_cache, shipped_ids
from advisor.workload.sources import load_language_model
from advisor.workload.spawn import ProfileRequest
from tests.generations import quiet_transformers

with (SHIPPED / "models.csv").open(newline="", encoding="utf-8") as table:
    MODELS = list(csv.DictReader(table))

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give every test an empty working directory and an empty local cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def download(hub: Path, model_id: str, *, commit: str, branch: str = "main") -> Path:
    folder = hub / f"models--{model_id.replace('/', '--')}"
    config = folder / "snapshots" / commit / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"model_type": "gpt2", "n_layer": len(list(hub.rglob("config.json")))}))
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / branch).write_text(commit)
    return config


def test_the_local_cache_is_where_huggingface_hub_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert hub_cache().name == "hub"
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache() == Path("/home/me/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert hub_cache() == Path("/cache/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "$HOME/hf")
    assert hub_cache() == Path("/home/me/hf/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "~/models")
    assert hub_cache() == Path("/home/me/models")


def test_a_path_comes_before_the_cache_and_the_cache_before_the_shipped_configs(hub: Path, tmp_path: Path) -> None:
    assert find_config("openai-community/gpt2") == SHIPPED / "openai-community--gpt2.json"
    cached = download(hub, "openai-community/gpt2", commit="a1")
    assert find_config("openai-community/gpt2") == cached
    (tmp_path / "openai-community/gpt2").mkdir(parents=True)
    assert find_config("openai-community/gpt2") == Path("openai-community/gpt2/config.json")
    Path("own.json").touch()
    assert find_config("own.json") == Path("own.json")


def test_the_branch_main_comes_before_newer_snapshots_and_the_newest_before_others(hub: Path) -> None:
    main = download(hub, "me/net", commit="a1")
    other = download(hub, "me/net", commit="b2", branch="dev")
    os.utime(main, (1, 1))
    assert find_config("me/net") == main
    (hub / "models--me--net/refs/main").unlink()
    assert find_config("me/net") == other
    (hub / "models--me--net/refs/main").write_text("../../../..")
    assert find_config("me/net") == other


def test_a_misspelt_id_is_compared_with_the_cache_too(hub: Path) -> None:
    download(hub, "me/own-network", commit="a1")
    with pytest.raises(LoadError) as caught:
        find_config("me/own-netwrok")
    assert "me/own-network" in caught.value.hint


def test_an_old_id_without_an_organization_is_the_only_model_of_that_name() -> None:
    assert find_config("bert-base-uncased") == SHIPPED / "google-bert--bert-base-uncased.json"


@pytest.mark.parametrize("reference", ["../gpt2", "org/../gpt2", "../../hub", "a/b/c", "org/..", "me/net\0", ".net"])
def test_only_an_id_is_looked_up(reference: str) -> None:
    with pytest.raises(LoadError, match=r"there is no config [^;]*$"):
        find_config(reference)


def test_an_unknown_id_says_where_was_looked_and_what_to_do(hub: Path) -> None:
    with pytest.raises(LoadError, match=f"looked in {hub}, and among the {len(MODELS)}") as caught:
        find_config("meta-llama/Llama-3.1-9B")
    assert "did you mean meta-llama/Llama-3.1-8B?" in caught.value.hint
    assert "hf download meta-llama/Llama-3.1-9B config.json" in caught.value.hint


def test_an_id_without_its_scheme_is_told_to_write_it() -> None:
    with pytest.raises(LoadError, match="there is no file gpt2") as caught:
        ProfileRequest(source="gpt2").check()
    assert caught.value.hint == "write hf:gpt2"
    with pytest.raises(LoadError, match="there is no file resnet50") as caught:
        ProfileRequest(source="resnet50").check()
    assert "torchvision:resnet50" in caught.value.hint


@pytest.mark.parametrize("change", ["download", "newer", "folder"])
def test_a_config_that_appears_or_changes_is_another_trace(change: str, hub: Path, tmp_path: Path) -> None:
    first = download(hub, "me/net", commit="a1") if change == "newer" else None
    with recorded_dependencies() as dependencies:
        found = find_config("me/net" if first else "openai-community/gpt2")
        found.read_bytes()
    assert are_unchanged(dependencies)
    if change == "folder":
        (tmp_path / "openai-community/gpt2").mkdir(parents=True)
    else:
        download(hub, "me/net" if first else "openai-community/gpt2", commit="b2")
    assert not are_unchanged(dependencies)


def test_another_cache_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ProfileRequest(source="hf:gpt2")
    before = trace_cache._file(request)
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    assert trace_cache._file(request) != before


def test_every_shipped_config_is_in_the_table_with_a_source_and_a_licence() -> None:
    assert sorted(row["id"] for row in MODELS) == shipped_ids()
    for row in MODELS:
        assert row["source"] == f"https://huggingface.co/{row['id']}"
        assert row["licence"]


@needs_transformers
def test_an_id_is_served_too() -> None:
    quiet_transformers()
    model = load_language_model("hf:HuggingFaceTB/SmolLM2-135M", Generation(prompt_tokens=8, output_tokens=4))
    assert (model.name, model.width, model.generation.most_tokens) == ("HuggingFaceTB/SmolLM2-135M", 576, 8192)


@needs_transformers
@pytest.mark.parametrize("row", MODELS, ids=lambda row: row["id"])
def test_a_shipped_config_has_the_published_parameters(row: dict[str, str]) -> None:
    transformers = quiet_transformers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own import
        config = json.loads(find_config(row["id"]).read_text(encoding="utf-8"))
        with torch.device("meta"):
            model = getattr(transformers, row["counted_as"])(
                transformers.CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
            )
    assert sum(parameter.numel() for parameter in model.parameters()) == int(row["parameters"])
    assert hasattr(transformers, config["architectures"][0])
