"""A torch module of the user's own: named without being imported, called by its arguments, refused with the way out."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputax.api import load_plan, own_model
from gputax.errors import EngineError, GputaxError, PreflightError, UsageError
from gputax.plan.cells import Setup
from gputax.plan.engines import parse_engine
from gputax.plan.own_model import OwnModel, is_factory, is_module, is_own
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.torch import TorchEngine
from gputax.worker.preparation import Prepared, prepare
from gputax.worker.workloads.model_store import file_sha256
from gputax.worker.workloads.own_model import own_network
from gputax.worker.workloads.own_module import find_source, import_factory
from tests.standins.tiny_torch import tiny_torch

SOURCE = """
from pathlib import Path
import numpy as np
import torch

Path(__file__).with_suffix(".imported").touch()
number = 3


class Net(torch.nn.Module):
    weights = np.arange(4, dtype=np.float32)
    seen = []

    def forward(self, x, ids=None):
        Net.seen.append((x, ids))
        return {"y": x, "others": (ids,)} if ids is not None else x


class Picky(Net):
    def forward(self, x):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x4 and 8x2)\\nlong tail")


class Brain(Net):
    weights = np.zeros(2, dtype=np.float64)


def make():
    print("a factory may print")
    return Net()


def dictionary():
    return {}


def needs(size):
    return Net()
"""
NAMES = ("nets_of_a_user", "package_of_a_user", "package_of_a_user.nets", "broken_of_a_user")


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a module alone and one in a package; it is the working folder."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setitem(sys.modules, "torch", tiny_torch())
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets_of_a_user.py").write_text(SOURCE)
    package = tmp_path / "package_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')")
    (package / "nets.py").write_text(SOURCE)
    (tmp_path / "broken_of_a_user.py").write_text("import a_package_that_nobody_has")
    yield tmp_path
    for name in NAMES:
        sys.modules.pop(name, None)


def named(factory: str = "make", module: str = "nets_of_a_user", **more: Any) -> OwnModel:
    return own_model(f"{module}:{factory}", **({"shapes": ["x=1x4"]} | more))


def request(own: OwnModel, max_batch: int = 4) -> EngineRequest:
    return EngineRequest(own.name, parse_engine("torch").options, "cpu", "fp32", 1, max_batch, own=own)


def prepared(own: OwnModel, max_batch: int = 4) -> Prepared:
    setup = Setup(
        own.name, engine="torch", device="cpu", threads=1, sample_count=8, max_batch=max_batch, seed=11, own=own
    )
    return prepare(setup, lambda text: None)


def test_the_planner_names_factory_and_content_and_imports_nothing(nets: Path) -> None:
    own = named()
    digest = file_sha256(nets / "nets_of_a_user.py")
    assert own.name == f"nets_of_a_user:make@{digest[:12]}"
    assert (own.file, own.root, own.in_package) == (str(nets / "nets_of_a_user.py"), str(nets), False)
    inside = named(module="package_of_a_user.nets")
    assert (inside.root, inside.in_package) == (str(nets), True)
    assert inside.name.startswith("package_of_a_user.nets:make@")
    assert is_own(own.name)
    assert is_module(own.name)
    cells = load_plan(own=own, scenarios=["single-stream"])
    assert {(cell.setup.workload, cell.setup.engine) for cell in cells} == {(own.name, "torch")}
    assert Setup.from_dict(cells[0].setup.to_dict()).own == own
    assert "nets_of_a_user_make@" in cells[0].id
    assert not list(nets.rglob("*.imported"))
    assert "package_of_a_user" not in sys.modules
    (nets / "nets_of_a_user.py").write_text(SOURCE + "# another content\n")
    assert named().name != own.name


def test_how_to_repeat_it_names_the_factory(nets: Path) -> None:
    own = named(shapes=["x=1x4", "ids=1x2"], ranges=["ids=0..9"])
    assert own.options[:2] == ["--model", "nets_of_a_user:make"]
    assert own.options[2:] == ["--shape", "x=1x4", "--shape", "ids=1x2", "--input", "ids=0..9"]


@pytest.mark.parametrize("text", ["net.onnx", "a/b:c", "a b:c", "a:", ":a", "http://x:y", "1a:b", "a:b:c"])
def test_what_is_not_a_factory(text: str) -> None:
    assert not is_factory(text)


def test_the_worker_calls_forward_by_the_names_of_the_options(nets: Path) -> None:
    found = prepared(named(shapes=["x=1x4", "ids=1x2"], ranges=["ids=0..9"]))
    assert (nets / "nets_of_a_user.imported").exists()
    found.engine.run(1, 3)
    x, ids = sys.modules["nets_of_a_user"].Net.seen[-1]
    assert (x.shape, x.values.dtype) == ((3, 4), np.float32)
    assert (ids.shape, ids.values.dtype) == ((3, 2), np.int64)
    assert ids.values.max() <= 9
    assert found.facts["samples"] == "drawn: x float32 [batch, 4] 0..1; ids int64 [batch, 2] 0..9"
    assert (found.facts["engine"], found.facts["precision"], found.facts["weights"]) == ("torch", "fp32", "own")
    assert found.facts["model_source_sha256"] == file_sha256(nets / "nets_of_a_user.py")
    assert sys.modules["torch"].seeds == [11]


def test_what_the_users_code_prints_is_not_on_stdout(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TorchEngine(request(named()))
    said = capsys.readouterr()
    assert (said.out, "a factory may print" in said.err) == ("", True)


def test_the_weights_have_a_digest_of_their_own(nets: Path) -> None:
    first = TorchEngine(request(named())).facts()["weights_sha256"]
    sys.modules["nets_of_a_user"].Net.weights = np.ones(4, dtype=np.float32)
    assert TorchEngine(request(named())).facts()["weights_sha256"] != first


def test_a_decimal_point_makes_floats_and_another_first_axis_one_sample(nets: Path) -> None:
    own = named(shapes=["x=7x4"], ranges=["x=0.0..2.0"])
    assert own.single
    found = prepared(own, max_batch=1)
    found.engine.run(2, 1)
    x, _ = sys.modules["nets_of_a_user"].Net.seen[-1]
    assert (x.shape, x.values.dtype) == ((7, 4), np.float32)
    with pytest.raises(UsageError, match="takes one sample at a time"):
        load_plan(own=own, scenarios=["offline"], batches=[8])


def test_samples_of_the_users_give_shapes_and_types(nets: Path) -> None:
    np.savez(nets / "s.npz", x=np.ones((3, 2, 2), np.float32), ids=np.arange(3, dtype=np.int32).reshape(3, 1))
    found = prepared(named(shapes=[], inputs=nets / "s.npz"))
    found.engine.run(0, 4)
    x, ids = sys.modules["nets_of_a_user"].Net.seen[-1]
    assert x.shape == (4, 2, 2)
    assert ids.values.dtype == np.int32
    assert ids.values.reshape(-1).tolist() == [0, 1, 2, 0]


def test_inputs_are_required(nets: Path) -> None:
    with pytest.raises(UsageError, match="a torch module does not declare its inputs") as raised:
        own_model("nets_of_a_user:make")
    assert "--shape NAME=1x3x224x224" in raised.value.next_step
    assert "--inputs FILE.npz" in raised.value.next_step


@pytest.mark.parametrize("words", [["x"], ["x="], ["x=1xA"], ["x=1x0"]])
def test_a_shape_without_sizes_is_refused(nets: Path, words: list[str]) -> None:
    with pytest.raises(UsageError, match="--shape"):
        named(shapes=words)


@pytest.mark.parametrize(
    ("model", "text", "next_step"),
    [
        ("nobody_has_this:make", "no Python module nobody_has_this", "start gputax in the folder that holds it"),
        ("package_of_a_user.nobody:make", "nobody is not found", "install its package"),
        ("nets_of_a_user.deeper:make", "no Python module nets_of_a_user.deeper", "install its package"),
    ],
)
def test_a_package_that_is_not_there(nets: Path, model: str, text: str, next_step: str) -> None:
    with pytest.raises(PreflightError, match=text) as raised:
        own_model(model, shapes=["x=1x4"])
    assert next_step in raised.value.next_step


def test_a_namespace_package_has_no_content(nets: Path) -> None:
    (nets / "bare_folder_of_a_user").mkdir()
    with pytest.raises(PreflightError, match="has no source file"):
        own_model("bare_folder_of_a_user:make", shapes=["x=1x4"])


@pytest.mark.parametrize(
    ("module", "factory", "text", "next_step"),
    [
        ("nets_of_a_user", "mkae", "nets_of_a_user has no mkae", "Brain, Net, Picky, dictionary, make"),
        ("nets_of_a_user", "number", "number is a int and cannot be called", "name a function or a class"),
        ("nets_of_a_user", "dictionary", "returned a dict, not a torch.nn.Module", "return the module itself"),
        ("nets_of_a_user", "needs", "the factory failed: TypeError", "takes no argument"),
        ("nets_of_a_user", "Brain", "weights are torch.float64", "module.float"),
        ("broken_of_a_user", "make", "importing broken_of_a_user failed: ModuleNotFoundError", "python -c"),
        ("package_of_a_user.nets", "make", "failed: SystemExit: the package was imported", "python -c"),
    ],
)
def test_a_factory_that_does_not_make_a_module(
    nets: Path, module: str, factory: str, text: str, next_step: str
) -> None:
    with pytest.raises(GputaxError, match=text) as raised:
        TorchEngine(request(named(factory, module)))
    assert next_step in raised.value.next_step


def test_arguments_of_forward_are_checked_before_the_first_run(nets: Path) -> None:
    with pytest.raises(UsageError, match=r"forward\(x, ids\) has no argument y") as raised:
        TorchEngine(request(named(shapes=["y=1x4"])))
    assert "--shape x=1xN --shape ids=1xN" in raised.value.next_step
    with pytest.raises(UsageError, match=r"forward\(x, ids\) needs x, which has no value"):
        TorchEngine(request(named(shapes=["ids=1x4"])))


def test_a_forward_that_fails_says_its_own_first_line(nets: Path) -> None:
    found = prepared(named("Picky"))
    with pytest.raises(EngineError, match=r"cannot be multiplied \(1x4 and 8x2\)$") as raised:
        found.engine.run(0, 1)
    assert "check --shape" in raised.value.next_step


def test_without_torch_the_error_says_how_to_install_it(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = named()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PreflightError, match="needs torch") as raised:
        TorchEngine(request(own))
    assert "pip install 'gputax[torch]'" in raised.value.next_step


def test_another_content_than_the_plans_is_refused(nets: Path) -> None:
    own = named()
    (nets / "nets_of_a_user.py").write_text(SOURCE + "# changed\n")
    with pytest.raises(PreflightError, match="changed since the plan was made"):
        own_network(own)


def test_another_module_of_that_name_is_not_taken_for_it(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nets_of_a_user", sys.modules["json"])
    with pytest.raises(PreflightError, match="has loaded another module"):
        import_factory(named())


def test_a_worker_elsewhere_finds_an_installed_package(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = dataclasses.replace(named(), root="/nowhere/on/this/machine")
    with pytest.raises(PreflightError, match="no Python module nets_of_a_user"):
        find_source(own.factory, own.root)
    monkeypatch.syspath_prepend(str(nets))
    assert find_source(own.factory, own.root).path == nets / "nets_of_a_user.py"


def test_engines_and_options_that_do_not_fit_are_refused(nets: Path) -> None:
    own = named()
    with pytest.raises(UsageError, match="makes a torch module, which the engine onnx cannot run"):
        load_plan(own=own, engine="onnx")
    with pytest.raises(UsageError, match="--precision is for a built-in model"):
        load_plan(own=own, precision="fp16")
    assert load_plan(own=own, engine="synthetic")
