import json
from pathlib import Path

import pytest

from advisor.answers.measurement_file import family_of


@pytest.mark.parametrize(
    ("source", "family"),
    [
        ("timm:resnet50@224", "timm:resnet"),
        ("timm:resnetv2_50x1_bit", "timm:resnet"),
        ("timm:vit_base_patch16_224", "timm:vit"),
        ("timm:tf_efficientnetv2_s@300", "timm:efficientnet"),
        ("timm:volo_d1_224", "timm:volo"),
        ("timm:nfnet_l0", "timm:nfnet"),
        ("torchvision:resnet18", "torchvision:resnet"),
        ("torchvision:alexnet", "torchvision:alexnet"),
        ("models/net.py::Big", "file:net"),
        ("models/operators.py::layer_norm_1024", "file:layer_norm"),
        ("models/operators.py::linear_512_2048", "file:linear"),
        ("saved/workload.json", "file:workload"),
        ("hf:missing/config.json", "hf:config"),
        ("hf:Qwen/Qwen2.5-0.5B", "hf:qwen2"),
    ],
)
def test_a_family_is_the_kind_of_source_and_the_architecture(source: str, family: str) -> None:
    assert family_of(source) == family


def test_the_family_of_a_config_is_its_model_type(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2"}))
    assert family_of(f"hf:{file}") == family_of(f"hf:{tmp_path}") == "hf:gpt2"
    file.write_text("no JSON")
    assert family_of(f"hf:{file}") == "hf:config"
