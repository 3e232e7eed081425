"""Models by name from torchvision, timm and Hugging Face configs, each where the package is installed."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from advisor.errors import LoadError, TraceError
from advisor.ops.registry import autocast_of
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources import load
from advisor.workload.trace import trace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages' own imports
    pytest.importorskip("torchvision")
    pytest.importorskip("timm")
    pytest.importorskip("transformers")


def load_inference(source: str) -> LoadedModel:
    return load(source, mode="inference", specs=())


def shapes(loaded: LoadedModel, batch: int = 2) -> list[tuple[int, ...]]:
    args, _ = loaded.make_inputs(batch)
    return [tuple(value.shape) for value in args]


def keyword_shapes(loaded: LoadedModel, batch: int = 2) -> dict[str, tuple[int, ...]]:
    _, keywords = loaded.make_inputs(batch)
    return {name: tuple(value.shape) for name, value in keywords.items()}


def is_weightless(loaded: LoadedModel) -> bool:
    return all(parameter.is_meta for parameter in loaded.model.parameters())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18", (2, 3, 224, 224)),
        ("vit_b_16", (2, 3, 224, 224)),
        ("inception_v3", (2, 3, 299, 299)),  # the size its paper was trained on
        ("efficientnet_v2_s", (2, 3, 384, 384)),  # evaluated at 384, so says torchvision's table
        ("fcn_resnet50", (2, 3, 520, 520)),
        ("r3d_18", (2, 3, 16, 112, 112)),
    ],
)
def test_torchvision_models_come_without_weights_with_inputs_of_their_size(name: str, shape: tuple[int, ...]) -> None:
    loaded = load_inference(f"torchvision:{name}")
    assert is_weightless(loaded)
    assert (loaded.name, shapes(loaded)) == (name, [shape])


def test_torchvisions_detectors_take_a_list_of_images() -> None:
    (images,), _ = load_inference("torchvision:ssdlite320_mobilenet_v3_large").make_inputs(2)
    assert [tuple(image.shape) for image in images] == [(3, 800, 1066)] * 2


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        ("timm:resnet18", (2, 3, 224, 224)),
        ("timm:resnet18@160", (2, 3, 160, 160)),  # a convolutional network takes any size
        ("timm:vit_tiny_patch16_224@384", (2, 3, 384, 384)),  # a ViT must be built for it
        ("timm:vit_tiny_patch16_224.augreg_in21k", (2, 3, 224, 224)),  # a tag chooses weights, not a network
    ],
)
def test_timm_models_come_without_weights_at_their_own_or_the_given_size(source: str, shape: tuple[int, ...]) -> None:
    loaded = load_inference(source)
    assert is_weightless(loaded)
    assert shapes(loaded) == [shape]
    with torch.device("meta"):
        assert loaded.model(torch.zeros(shape)).shape[0] == 2


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("torchvision:resnet51", "torchvision has no model resnet51", "resnet50"),
        ("timm:resnet51", "timm has no model resnet51", "resnet50"),
        ("timm:resnet18@big", "big is not an image size", "timm:resnet18@384"),
    ],
)
def test_a_mistyped_name_gets_the_nearest_one(source: str, message: str, hint: str) -> None:
    with pytest.raises(LoadError, match=message) as caught:
        load_inference(source)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("source", "package"),
    [("torchvision:resnet18", "torchvision"), ("timm:resnet18", "timm"), ("hf:config.json", "transformers")],
)
def test_a_package_that_is_missing_is_named_with_what_to_install(
    source: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    monkeypatch.setitem(sys.modules, package, None)  # how Python marks a module that must not be found
    with pytest.raises(LoadError, match=f"{package} is not installed") as caught:
        load_inference(source)
    assert "pip install" in caught.value.hint


def config(folder: Path, **settings: Any) -> str:
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return f"hf:{folder}"


GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 50, "n_positions": 64}
BERT = {
    "model_type": "bert", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
    "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {"model_type": "t5", "num_layers": 1, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "vocab_size": 50}
VIT = {"model_type": "vit", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "image_size": 32}


def test_a_config_gives_the_architecture_it_names_without_weights(tmp_path: Path) -> None:
    loaded = load_inference(config(tmp_path, **GPT2, architectures=["GPT2LMHeadModel"]))
    assert type(loaded.model).__name__ == "GPT2LMHeadModel"
    assert is_weightless(loaded)
    assert (loaded.name, loaded.loss) == (tmp_path.name, None)
    assert keyword_shapes(loaded) == {"input_ids": (2, 64)}
    assert loaded.notes[0].startswith("input of 64 tokens assumed; a sample is one forward pass: ")


def test_only_a_model_that_generates_text_is_told_how_to_price_it(tmp_path: Path) -> None:
    assert load_inference(config(tmp_path, **GPT2)).notes[0] == "input of 64 tokens assumed"


@pytest.mark.parametrize("architectures", [[5], ["logging"], ["GPT3"]])
def test_a_config_of_a_class_that_is_no_model_is_refused(tmp_path: Path, architectures: list[Any]) -> None:
    with pytest.raises(LoadError, match="has no model"):
        load_inference(config(tmp_path, **GPT2, architectures=architectures))


def test_a_config_may_name_its_class_without_a_list(tmp_path: Path) -> None:
    loaded = load_inference(config(tmp_path, **GPT2, architectures="GPT2LMHeadModel"))
    assert type(loaded.model).__name__ == "GPT2LMHeadModel"


def test_tokens_that_were_asked_for_are_not_assumed(tmp_path: Path) -> None:
    assert load(config(tmp_path, **GPT2), mode="training", specs=(), tokens=32).notes[0] == "input of 32 tokens"


def test_a_config_without_architectures_gives_the_bare_model(tmp_path: Path) -> None:
    assert type(load_inference(config(tmp_path, **GPT2)).model).__name__ == "GPT2Model"


def test_the_json_file_itself_is_a_source_too(tmp_path: Path) -> None:
    config(tmp_path, **GPT2)
    assert load_inference(f"hf:{tmp_path / 'config.json'}").name == "config"


def test_long_contexts_are_cut_to_512_tokens(tmp_path: Path) -> None:
    loaded = load_inference(config(tmp_path, **(GPT2 | {"n_positions": 4096})))
    assert keyword_shapes(loaded) == {"input_ids": (2, 512)}


@pytest.mark.parametrize(
    ("settings", "architecture", "inputs"),
    [
        (GPT2, "GPT2LMHeadModel", {"input_ids": (2, 64), "labels": (2, 64)}),
        (GPT2 | {"pad_token_id": 0}, "GPT2ForSequenceClassification", {"input_ids": (2, 64), "labels": (2,)}),
        (GPT2, "GPT2ForTokenClassification", {"input_ids": (2, 64), "labels": (2, 64)}),
        (
            GPT2,
            "GPT2ForQuestionAnswering",
            {"input_ids": (2, 64), "start_positions": (2,), "end_positions": (2,)},
        ),
        (
            T5,
            "T5ForConditionalGeneration",
            {"input_ids": (2, 512), "decoder_input_ids": (2, 512), "labels": (2, 512)},
        ),
        (VIT, "ViTForImageClassification", {"pixel_values": (2, 3, 32, 32), "labels": (2,)}),
        (BERT, "BertForPreTraining", {"input_ids": (2, 64), "labels": (2, 64), "next_sentence_label": (2,)}),
        (
            BERT | {"model_type": "albert", "embedding_size": 8},
            "AlbertForPreTraining",
            {"input_ids": (2, 64), "labels": (2, 64), "sentence_order_label": (2,)},
        ),
        (BERT | {"model_type": "electra"}, "ElectraForPreTraining", {"input_ids": (2, 64), "labels": (2, 64)}),
    ],
)
def test_in_training_the_models_own_loss_is_used(
    tmp_path: Path, settings: dict[str, Any], architecture: str, inputs: dict[str, tuple[int, ...]]
) -> None:
    mode: Mode = "training"
    loaded = load(config(tmp_path, **settings, architectures=[architecture]), mode=mode, specs=())
    assert keyword_shapes(loaded) == inputs
    _, keywords = loaded.make_inputs(2)
    model = loaded.model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        torch.nn.init.zeros_(tensor)
    output = model(**keywords)
    assert loaded.loss is not None
    assert loaded.loss(output, keywords).shape == ()


def test_a_model_that_needs_other_labels_for_its_loss_says_which_it_takes(tmp_path: Path) -> None:
    source = config(tmp_path, **(BERT | {"model_type": "splinter"}), architectures=["SplinterForPreTraining"])
    with pytest.raises(TraceError, match="SplinterForPreTraining computes no loss from labels") as caught:
        trace(load(source, mode="training", specs=()), mode="training", batch=None)
    assert "start_positions, end_positions, question_positions" in caught.value.hint
    assert "input_ids" not in caught.value.hint

    positions = [f"{name}=4:int64" for name in ("start_positions", "end_positions", "question_positions")]
    specs = parse_input_specs(["input_ids=64:int64", *positions])
    workload = trace(load(source, mode="training", specs=specs), mode="training", batch=None)
    assert sum(row.count for row in workload.rows if row.op == "aten.nll_loss_forward") == 2


def test_a_model_whose_config_does_not_describe_its_images_asks_for_their_shape(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="the shape of MaskFormerModel's input pixel_values is unknown") as caught:
        load_inference(config(tmp_path, model_type="maskformer"))
    assert "--input pixel_values=" in caught.value.hint


def test_code_on_a_hub_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "modeling.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    remote = {"auto_map": {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}}
    assert type(load_inference(config(tmp_path, **GPT2, **remote)).model).__name__ == "GPT2Model"
    with pytest.raises(LoadError, match="no model_type own") as caught:
        load_inference(config(tmp_path, model_type="own", **remote))
    assert "remote code is never run" in caught.value.hint
    with pytest.raises(LoadError, match="has no model OwnModel"):
        load_inference(config(tmp_path, **GPT2, **remote, architectures=["OwnModel"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "config.json"), ("[]", "has no model_type"), ("{}", "has no model_type"), ('{"model_type": 3}', "has no")],
)
def test_what_is_no_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(LoadError, match=message):
        load_inference(f"hf:{tmp_path}")


def test_an_id_is_the_models_name() -> None:
    loaded = load_inference("hf:openai-community/gpt2")
    assert loaded.name == "openai-community/gpt2"
    assert is_weightless(loaded)
    assert sum(parameter.numel() for parameter in loaded.model.parameters()) == 124_439_808


def test_a_mistyped_model_type_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no model_type gtp2") as caught:
        load_inference(config(tmp_path, model_type="gtp2"))
    assert caught.value.hint == "did you mean gpt2?"


def test_inputs_on_the_command_line_win(tmp_path: Path) -> None:
    loaded = load(config(tmp_path, **GPT2), mode="inference", specs=parse_input_specs(["input_ids=16:int64"]))
    assert keyword_shapes(loaded) == {"input_ids": (2, 16)}


def rows_of(source: str, attention: Attention) -> set[str]:
    loaded = load(source, mode="inference", specs=(), attention=attention)
    return {row.op for row in trace(loaded, mode="inference", batch=None, attention=attention).rows}


def test_attention_is_built_in_the_form_asked_for(tmp_path: Path) -> None:
    vit = "timm:vit_tiny_patch16_224"
    for source in (config(tmp_path, **GPT2), vit):
        assert "attention" in rows_of(source, "auto")
        assert "attention" in rows_of(source, "fused")
        eager = rows_of(source, "eager")
        assert "attention" not in eager
        assert eager >= {"aten.bmm", "aten._softmax"}
    assert "attention" in rows_of(vit, "auto")  # timm's switch of the whole process is as it was


@pytest.mark.parametrize(("form", "policy"), [("", "full"), ("+fast-norm", "low")])
def test_norms_of_timm_stay_in_half_only_if_asked_for_and_say_so(form: str, policy: str) -> None:
    loaded = load(f"timm:test_efficientnet_gn{form}", mode="inference", specs=())
    workload = trace(loaded, mode="inference", batch=None)
    norms = [row for row in workload.rows if row.op == "aten.native_group_norm"]
    assert {autocast_of(row.op, row.attributes, on_cpu=False) for row in norms} == {policy}
    assert any("set_fast_norm" in note for note in workload.assumptions) == (policy == "low")


def test_branches_of_timm_are_fused_if_asked_for() -> None:
    """RepVGG-A0: 1 + 2 + 4 + 14 + 1 blocks, each with two convolutions before and one with a bias after."""
    counts = {}
    for form in ("", "+reparam"):
        workload = trace(load(f"timm:repvgg_a0{form}", mode="inference", specs=()), mode="inference", batch=None)
        counts[form] = {
            op: sum(row.count for row in workload.rows if row.op == op)
            for op in ("aten.convolution", "aten._native_batch_norm_legit_no_training")
        }
    assert counts["+reparam"] == {"aten.convolution": 22, "aten._native_batch_norm_legit_no_training": 0}
    assert counts[""]["aten.convolution"] == 44


@pytest.mark.parametrize(("source", "mode"), [("resnet18+fused", "inference"), ("repvgg_a0+reparam", "training")])
def test_a_form_that_timm_lacks_is_refused(source: str, mode: Mode) -> None:
    with pytest.raises(LoadError, match=source.partition("+")[2]):
        load(f"timm:{source}", mode=mode, specs=())


def test_a_hugging_face_model_is_built_without_the_compiler_and_packages_it_does_not_use(tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1, "num_attention_heads": 2}))
    code = f"""
import sys
from advisor.workload.quick_fake_mode import stand_in_for_dynamo
from advisor.workload.sources import load
from advisor.workload.trace import trace
stand_in_for_dynamo()
print(trace(load("hf:{tmp_path}", mode="training", specs=()), mode="training", batch=None, isolated=True).method)
unused = ("torch._dynamo.eval_frame", "torchvision", "accelerate", "scipy.optimize", "sklearn")
print([name for name in unused if name in sys.modules])
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert finished.stdout.splitlines() == ["fake", "[]"], finished.stderr


def test_torchvision_is_imported_without_the_compiler():
    code = """
import sys
from advisor.workload.quick_fake_mode import stand_in_for_dynamo
from advisor.workload.sources.installed import require
stand_in_for_dynamo()
require("torchvision")
print("torch._dynamo.eval_frame" in sys.modules)
from torchvision.ops.roi_align import is_compile_supported
print(is_compile_supported("mps"), "torch._dynamo.eval_frame" in sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert finished.stdout.splitlines() == ["False", "False True"], finished.stderr
