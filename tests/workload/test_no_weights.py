"""Pretrained models of transformers, timm and torchvision are built without their weights and without a network."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from advisor.workload.no_network import NoNetworkError, network_refused
from advisor.workload.no_weights import weights_left_out
from advisor.workload.sources.python_file import with_weights
from tests.generations import quiet_transformers
from tests.model_files import Write
from tests.workload.test_spawn import error_of, profile

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("transformers", "timm", "torchvision"))), reason="needs transformers, timm and torchvision"
)
TINY = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 32,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a local cache that has `me/tiny` and nothing else."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub/models--me--tiny/snapshots/a1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    (tmp_path / "hub/models--me--tiny/refs").mkdir()
    (tmp_path / "hub/models--me--tiny/refs/main").write_text("a1", encoding="utf-8")


@pytest.fixture
def transformers(hub: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package = quiet_transformers()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with network_refused(), weights_left_out():
        yield package


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_a_cached_id_gives_the_config_without_weights_in_evaluation_mode(transformers: Any) -> None:
    model = transformers.AutoModel.from_pretrained("me/tiny")
    assert type(model).__name__ == "BertModel"
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not model.training
    assert model.name_or_path == "me/tiny"


def test_a_shipped_id_does(transformers: Any) -> None:
    assert count(transformers.BertModel.from_pretrained("bert-base-uncased")) == 109_482_240
    assert transformers.AutoConfig.from_pretrained("openai-community/gpt2").n_layer == 12


def test_settings_that_fix_shapes_and_dtypes_count(transformers: Any) -> None:
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained("me/tiny", num_labels=5, torch_dtype=torch.bfloat16, device_map="auto")
    assert model.classifier.weight.shape == (5, 8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    model, info = kind.from_pretrained("me/tiny", dtype="float16", output_loading_info=True)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    assert info["missing_keys"] == []
    model = transformers.BertModel.from_pretrained("me/tiny", torch_dtype="bfloat16")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    config = transformers.AutoConfig.from_pretrained("me/tiny", num_hidden_layers=3)
    assert len(kind.from_pretrained("me/tiny", config=config).bert.encoder.layer) == 3


def test_attention_that_needs_a_gpu_is_torchs_own_and_other_forms_are_kept(transformers: Any) -> None:
    kind = transformers.AutoModel
    for asked, built in (("flash_attention_2", "sdpa"), ("eager", "eager")):
        model = kind.from_pretrained("me/tiny", attn_implementation=asked)
        assert model.config._attn_implementation == built


def test_a_folder_with_weights_is_built_from_its_config(transformers: Any, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(json.dumps(TINY), encoding="utf-8")
    (tmp_path / "own/model.safetensors").write_bytes(b"not read")
    model = transformers.AutoModelForMaskedLM.from_pretrained(str(tmp_path / "own"))
    assert model.bert.embeddings.word_embeddings.weight.shape == (50, 8)


def test_a_step_that_is_timed_has_weights(transformers: Any) -> None:
    with with_weights():
        model = transformers.AutoModel.from_pretrained("me/tiny")
    assert not any(parameter.is_meta for parameter in model.parameters())


def test_an_unknown_id_and_a_tokenizer_that_is_not_here_are_refused_with_the_line(transformers: Any) -> None:
    with pytest.raises(NoNetworkError, match=r"test_no_weights.py:\d+: there is no config me/tinny"):
        transformers.AutoModel.from_pretrained("me/tinny")
    with pytest.raises(NoNetworkError, match=r"test_no_weights.py:\d+: the tokenizer of me/tiny is not on this disk"):
        transformers.AutoTokenizer.from_pretrained("me/tiny")


def test_nothing_is_patched_afterwards() -> None:
    kind = quiet_transformers().PreTrainedModel
    before = (kind.from_pretrained.__func__, nn.Module.load_state_dict, torch.hub.load_state_dict_from_url)
    with weights_left_out():
        assert kind.from_pretrained.__func__ is not before[0]
    assert (kind.from_pretrained.__func__, nn.Module.load_state_dict, torch.hub.load_state_dict_from_url) == before


def test_weights_that_the_code_takes_apart_are_empty() -> None:
    with weights_left_out() as notes:
        state = torch.hub.load_state_dict_from_url("https://example.com/net-1.pth")
        state.pop("fc.weight")
        del state["fc.bias"]
        model = nn.Linear(2, 2)
        model.load_state_dict({name.removeprefix("module."): value for name, value in state["model"].items()})
        model.load_state_dict(nn.Linear(2, 2).state_dict())
        with pytest.raises(RuntimeError, match="size mismatch"):
            model.load_state_dict(nn.Linear(3, 2).state_dict())
    assert [note.partition(":")[0] for note in notes] == ["net-1.pth"]


TRAINING = """
    import torch
    from transformers import AutoModelForSequenceClassification
    model = AutoModelForSequenceClassification.from_pretrained("me/tiny", num_labels=3).to("cuda")
    model.half().float().train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 50, (8, 16)).to(model.device)
    {before}
    model(input_ids=ids, labels=torch.zeros(8, dtype=torch.long, device="cuda")).loss.backward()
    optimizer.step()
"""
# embeddings 50, 32 and 2 x 8, norm 2 x 8; q, k, v, o 8 x 8 + 8; up 8 x 16 + 16, down 16 x 8 + 8; two norms 2 x 8;
# pooler 8 x 8 + 8, classifier 8 x 3 + 3
TINY_PARAMETERS = 84 * 8 + 16 + 4 * 72 + 144 + 136 + 2 * 16 + 72 + 27


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("before", "method"),
    [
        ("print(model(ids).logits.mean().item())", "symbolic"),
        ("print(ids if model(ids).logits.mean().item() > 0 else 0)", "cpu_step"),
    ],
)
def test_a_script_trains_a_pretrained_model_on_fakes_or_else_on_a_model_with_weights(
    before: str, method: str, write: Write
) -> None:
    workload = profile(write(TRAINING.format(before=f"with torch.no_grad(): {before}")), run=True, finds_mode=True)
    assert (workload["parameter_count"], workload["method"]) == (TINY_PARAMETERS, method)
    assert workload["assumptions"][-1].startswith("me/tiny: built without its pretrained weights (net.py:4)")
    assert workload["is_pretrained"]


def test_a_script_takes_pretrained_models_of_timm_and_torchvision(write: Write) -> None:
    text = """
        import timm, torch
        from torchvision.models import ResNet18_Weights, resnet18
        first = resnet18(weights=ResNet18_Weights.DEFAULT)
        second = timm.create_model("hf-hub:timm/test_resnet.r160_in1k", pretrained=True, num_classes=7)
        with torch.no_grad():
            (first(torch.rand(2, 3, 64, 64)).shape, second(torch.rand(2, 3, 64, 64)).shape)
    """
    workload = profile(write(text), run=True, finds_mode=True)
    assert workload["parameter_count"] == 11_689_512 + 373_367  # torchvision's table of weights, and a small ResNet
    assert [note.partition(":")[0] for note in workload["assumptions"][-2:]] == [
        "ResNet18_Weights.IMAGENET1K_V1",
        "timm's test_resnet",
    ]


@pytest.mark.usefixtures("hub")
def test_a_file_takes_pretrained_models_in_a_factory_and_at_its_top(write: Write) -> None:
    text = """
        import torch
        from transformers import AutoModel
        def get_model(layers=1):
            return AutoModel.from_pretrained("me/tiny", num_hidden_layers=layers, dtype=torch.bfloat16)
        top = AutoModel.from_pretrained("me/tiny", num_hidden_layers=2)
        example_inputs = torch.zeros(4, 16, dtype=torch.long)
    """
    counts = [profile(write(text) + name)["parameter_count"] for name in ("", "::top")]
    # without the classifier, 8 x 3 + 3; a second layer has q, k, v, o, up, down and two norms
    assert counts == [TINY_PARAMETERS - 27, TINY_PARAMETERS - 27 + 4 * 72 + 144 + 136 + 2 * 16]


def test_a_mistyped_id_in_a_file_is_refused_with_the_line_and_the_closest_id(write: Write) -> None:
    error = error_of(
        write("""
        from transformers import AutoModel
        def get_model():
            return AutoModel.from_pretrained("google-bert/bert-base-uncasd")
    """)
    )
    assert error.message.startswith("net.py:4: there is no config google-bert/bert-base-uncasd")
    assert "google-bert/bert-base-uncased" in error.hint
