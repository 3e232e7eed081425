import sys
from pathlib import Path
from textwrap import dedent
from typing import Protocol

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources.python_file import build_on_meta, load

EXAMPLES = Path(__file__).parents[2] / "examples"
NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width=5):
            super().__init__()
            self.layer = nn.Linear(3, width)

        def forward(self, x):
            return self.layer(x)

    example_inputs = torch.zeros(4, 3)
"""


class LoadText(Protocol):
    def __call__(self, text: str, *, name: str = "", inputs: tuple[str, ...] = ()) -> LoadedModel: ...


@pytest.fixture
def load_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadText:
    """Write a file whose text is NET and more, and load it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net", raising=False)

    def write_and_load(text: str, *, name: str = "", inputs: tuple[str, ...] = ()) -> LoadedModel:
        Path("net.py").write_text(dedent(text), encoding="utf-8")
        return load(f"net.py::{name}" if name else "net.py", mode="inference", specs=parse_input_specs(inputs))

    return write_and_load


def width(loaded: LoadedModel) -> int:
    (layer,) = (module for module in loaded.model.modules() if isinstance(module, nn.Linear))
    return layer.out_features


def test_the_one_class_that_builds_without_arguments_is_the_model(load_text: LoadText) -> None:
    loaded = load_text(NET)
    assert (type(loaded.model).__name__, loaded.name, width(loaded), loaded.batch) == ("Net", "net", 5, 4)


def test_model_wins_over_factories_and_classes(load_text: LoadText) -> None:
    assert width(load_text(NET + "\n    model = Net(7)\n    def get_model(): return Net(8)\n")) == 7


@pytest.mark.parametrize("factory", ["get_model", "build_model", "make_model"])
def test_a_factory_wins_over_classes(load_text: LoadText, factory: str) -> None:
    assert width(load_text(NET + f"\n    def {factory}(width=9): return Net(width)\n")) == 9


@pytest.mark.parametrize(("name", "expected"), [("small", 2), ("Net", 5), ("large", 99)])
def test_a_name_chooses_an_instance_a_class_or_a_factory(load_text: LoadText, name: str, expected: int) -> None:
    text = NET + "\n    model = Net(1)\n    small = Net(2)\n    def large(): return Net(99)\n"
    loaded = load_text(text, name=name)
    assert (width(loaded), loaded.name) == (expected, name)


def test_classes_that_the_file_imports_are_no_candidates(load_text: LoadText) -> None:
    assert width(load_text("    from torch.nn import Flatten, ReLU\n" + NET)) == 5


def test_classes_and_factories_are_built_without_their_weights(load_text: LoadText) -> None:
    for text in (NET, NET + "\n    def get_model(): return Net()\n"):
        assert all(parameter.is_meta for parameter in load_text(text).model.parameters())


def test_code_that_needs_real_tensors_is_built_really(load_text: LoadText) -> None:
    text = NET + "\n    def get_model(): return Net(int(torch.ones(6).sum().item()))\n"
    loaded = load_text(text)
    assert width(loaded) == 6
    assert not any(parameter.is_meta for parameter in loaded.model.parameters())


def test_a_model_that_keeps_a_tensor_in_a_plain_attribute_is_built_really() -> None:
    def with_loose_tensor() -> nn.Module:
        model = nn.Linear(3, 3)
        model.table = {"scale": torch.ones(3)}  # type: ignore[assignment]
        return model

    assert build_on_meta(with_loose_tensor) is None
    assert build_on_meta(lambda: nn.LSTM(3, 3)) is not None  # keeps a second list of its own parameters


def test_a_model_that_loads_weights_is_built_really() -> None:
    def with_weights() -> nn.Module:
        model = nn.Linear(3, 3)
        model.load_state_dict({"weight": torch.ones(3, 3, device="cpu"), "bias": torch.ones(3, device="cpu")})
        return model

    assert build_on_meta(with_weights) is None  # torch warns that it copied nothing


def test_the_files_training_functions_and_inputs_are_used(load_text: LoadText) -> None:
    text = """
    def loss(output, batch): return output.sum()
    def optimizer(parameters): return torch.optim.SGD(parameters, lr=1)
    """
    loaded = load_text(NET + text)
    assert loaded.loss is not None
    assert loaded.optimizer is not None
    assert loaded.train_step is None


def test_inputs_on_the_command_line_win_over_the_files(load_text: LoadText) -> None:
    assert tuple(load_text(NET, inputs=("6x3",)).make_inputs(2)[0][0].shape) == (2, 6, 3)


def test_dataclasses_and_late_imports_of_the_file_by_name_work(load_text: LoadText) -> None:
    text = """
    from __future__ import annotations
    from dataclasses import dataclass
    @dataclass
    class Sizes:
        width: int = 4
    def get_model():
        import net
        return Net(net.Sizes().width)
    """
    assert width(load_text(dedent(text) + dedent(NET))) == 4


def test_importing_leaves_no_bytecode_beside_the_file(load_text: LoadText) -> None:
    load_text(NET)
    assert [path.name for path in Path().iterdir()] == ["net.py"]


def test_a_file_that_trains_while_it_is_loaded_is_a_script(load_text: LoadText) -> None:
    trained = "\n    net = Net()\n    net(example_inputs).sum().backward()\n"
    with pytest.raises(LoadError, match=r"^net\.py:16 trains while the file is loaded$") as caught:
        load_text(NET + trained)
    assert "--run" in caught.value.hint


def test_several_models_are_listed_with_how_to_choose(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="several models: Net, Other") as caught:
        load_text(NET + "\n    class Other(Net): pass\n")
    assert "net.py::Other" in caught.value.hint


def test_a_lightning_module_wins_over_the_networks_that_it_trains(load_text: LoadText) -> None:
    learner = """
    LightningModule = type("LightningModule", (nn.Module,), {"__module__": "lightning"})

    class Learner(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net(9)
    """
    loaded = load_text(NET + learner)
    assert (type(loaded.model).__name__, width(loaded)) == ("Learner", 9)


def test_several_factories_are_listed_too(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="several models: get_model, make_model"):
        load_text(NET + "\n    def make_model(): pass\n    def get_model(): pass\n")


def test_without_a_model_the_classes_are_listed_with_a_get_model_to_paste(load_text: LoadText) -> None:
    text = """
    from torch import nn
    class Block(nn.Module):
        def __init__(self, width: int, *, depth: int = 2): pass
    class Net(nn.Module):
        def __init__(self, blocks, classes=10, *, width): pass
    """
    with pytest.raises(LoadError) as caught:
        load_text(text)
    assert "\n  Block(width: int, *, depth: int = 2)\n  Net(blocks, classes=10, *, width)" in caught.value.message
    pasted = caught.value.hint.partition("\n")[2]
    assert pasted == "def get_model():\n    return Net(blocks=..., width=...)"
    compile(pasted, "net.py", "exec")


def test_a_named_class_that_needs_arguments_gets_a_get_model_to_paste(load_text: LoadText) -> None:
    text = NET + "\n    class Wide(Net):\n        def __init__(self, width): super().__init__(width)\n"
    with pytest.raises(LoadError, match=r"Wide\(width\) requires width") as caught:
        load_text(text, name="Wide")
    assert caught.value.hint.endswith("def get_model():\n    return Wide(width=...)")


def test_an_instance_of_another_name_is_proposed(load_text: LoadText) -> None:
    with pytest.raises(LoadError) as caught:
        load_text("from torch import nn\nnetwork = nn.Linear(3, 3)\n")
    assert caught.value.hint == "choose one, for example net.py::network"


def test_a_file_without_any_model_is_sent_to_run(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="has no model") as caught:
        load_text("x = 3\n")
    assert "--run" in caught.value.hint


def test_a_mistyped_name_gets_the_nearest_one(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match=r"net\.py: has no Nte") as caught:
        load_text(NET, name="Nte")
    assert caught.value.hint == "did you mean net.py::Net?"


def test_a_name_of_something_else_says_what_it_is(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="example_inputs is Tensor, not a model"):
        load_text(NET, name="example_inputs")


def test_a_factory_that_gives_no_module_says_what_it_gave(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match=r"get_model\(\) returned dict, not a torch.nn.Module"):
        load_text(NET + "\n    def get_model(): return {}\n")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(b"x = 1\0\0")
    with pytest.raises((LoadError, SyntaxError), match="null bytes"):
        load(str(path), mode="inference", specs=())


@pytest.mark.parametrize(
    ("name", "parameter_count", "batch"),
    [
        ("resnet50", 25_557_032, 32),  # He et al. 2015 with torchvision's stride and biases
        # 50,257 x 768 + 1,024 x 768 + 12 x (12 x 768^2 + 13 x 768) + 2 x 768
        ("transformer", 124_439_808, 8),
        # 20,000 x 256 + 2 x [4 x 256 x (256 + 256 + 2)] + 2 x [4 x 256 x (512 + 256 + 2)] + 512 x 2 + 2
        ("lstm", 7_750_658, 64),
        ("mlp", 91_905, 64),  # 100 x 256 + 256 + 256 x 256 + 256 + 256 + 1
    ],
)
def test_each_example_builds_and_takes_its_inputs(name: str, parameter_count: int, batch: int) -> None:
    loaded = load(str(EXAMPLES / f"{name}.py"), mode="inference", specs=())
    assert sum(parameter.numel() for parameter in loaded.model.parameters()) == parameter_count
    assert loaded.batch == batch
    model = loaded.model.to_empty(device="meta")
    args, _ = loaded.make_inputs(2)
    assert model(*(value.to("meta") for value in args)).shape[0] == 2


def test_a_class_with_a_second_name_is_still_the_only_one(load_text: LoadText) -> None:
    assert isinstance(load_text(NET + "    Network = Net\n").model, nn.Module)


def test_a_factory_called_model_is_among_the_nearest_names(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="has no modl") as caught:
        load_text(NET + "    def model():\n        return Net()\n", name="modl")
    assert caught.value.hint == "did you mean net.py::model?"


def test_arguments_reach_the_class_and_the_inputs_that_take_them(load_text: LoadText) -> None:
    sized = NET.replace(
        "example_inputs = torch.zeros(4, 3)",
        "def example_inputs(batch=4, width=1): return torch.zeros(batch, width)",
    )
    loaded = load_text(sized, name="Net(width=7)")
    args, _ = loaded.make_inputs(2)
    assert (width(loaded), loaded.name, loaded.batch, tuple(args[0].shape)) == (7, "Net(width=7)", 4, (2, 7))


def test_arguments_that_nothing_takes_are_refused(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match=r"Net\(width=5\) has no parameter depth"):
        load_text(NET, name="Net(depth=2)")
    with pytest.raises(LoadError, match="already a model"):
        load_text(NET + "\n    model = Net(7)\n", name="model(width=2)")


def test_a_factory_that_still_lacks_an_argument_says_which(load_text: LoadText) -> None:
    with pytest.raises(LoadError, match="requires classes"):
        load_text(NET + "\n    def get_model(width, classes): return Net(width)\n", name="get_model(width=2)")
