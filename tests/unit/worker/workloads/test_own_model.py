"""A user's own network: its axes, its values, and errors that name the option to add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from gputax.api import own_model
from gputax.errors import GputaxError, PreflightError, UsageError
from gputax.plan.own_model import OwnModel, is_own
from gputax.plan.workloads import WORKLOADS
from gputax.worker.workloads.own_model import OwnNetwork, own_network
from tests.builders.small_models import Tensor, small_text_model, write_network

FLOAT, INT64, BOOL, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8


def declared(path: Path, *inputs: Tensor) -> Path:
    """Write a file with these inputs; whether it could run does not matter to its header."""
    return write_network(
        path, [helper.make_node("Identity", [inputs[0][0]], ["y"])], list(inputs), [("y", FLOAT, None)]
    )


def network(path: Path, **more: Any) -> OwnNetwork:
    return own_network(OwnModel(str(path), **more))


def test_the_name_is_the_files_and_its_contents(tmp_path: Path) -> None:
    first, second = small_text_model(tmp_path / "resnet50"), small_text_model(tmp_path / "b b.onnx", seed=2)
    names = [own_model(path, shapes=["ids=1x4"]).name for path in (first, second)]
    assert names[0].startswith("resnet50@")
    assert names[1].startswith("b_b.onnx@")
    assert all(is_own(name) for name in names)
    assert not any(is_own(name) for name in WORKLOADS)
    assert names[0].partition("@")[2] != names[1].partition("@")[2]


def test_a_free_first_axis_is_the_batch(tmp_path: Path) -> None:
    found = network(small_text_model(tmp_path / "m.onnx"), shapes=("ids=1x12",), ranges=("ids=5..999",))
    assert (found.batched, found.fixed_batch, found.precision) == (True, None, "fp32")
    (ids,) = found.inputs
    assert (ids.shape, ids.low, ids.high) == ((12,), 5.0, 999.0)
    drawn = found.samples(200, 7)["ids"]
    assert drawn.shape == (200, 12)
    assert drawn.dtype == np.int64
    assert (drawn.min(), drawn.max()) == (5, 999)
    assert np.array_equal(drawn[:3], found.samples(3, 7)["ids"])
    assert not np.array_equal(drawn, found.samples(200, 8)["ids"])
    assert found.samples_text == "drawn: ids int64 [batch, 12] 5..999"


def test_ids_are_drawn_from_the_table_that_they_look_up(tmp_path: Path) -> None:
    (ids,) = network(small_text_model(tmp_path / "m.onnx", rows=77), shapes=("ids=1x12",)).inputs
    assert (ids.low, ids.high) == (0.0, 76.0)
    assert set(np.unique(ids.drawn(500, 1))) == set(range(77))


def test_a_free_axis_without_a_size_prints_the_option_to_add(tmp_path: Path) -> None:
    path = declared(tmp_path / "m.onnx", ("ids", INT64, ["batch", "tokens"]), ("image", FLOAT, ["batch", 3, "h", None]))
    with pytest.raises(UsageError, match=r"leaves axes free: ids int64 \[batch, tokens\], image") as raised:
        own_model(path)
    assert "--shape ids=1xTOKENS --shape image=1x3xHxSIZE" in raised.value.next_step


def test_one_name_in_two_inputs_is_one_size(tmp_path: Path) -> None:
    path = declared(tmp_path / "m.onnx", ("ids", INT64, ["n", "tokens"]), ("mask", INT64, ["n", "tokens"]))
    assert [each.shape for each in network(path, shapes=("ids=1x9",)).inputs] == [(9,), (9,)]
    with pytest.raises(UsageError, match="tokens of mask would be 8, but 9 in another input"):
        network(path, shapes=("ids=1x9", "mask=1x8"))


@pytest.mark.parametrize(
    ("inputs", "shapes", "expected"),
    [
        ([("x", FLOAT, [1, 3, 8])], (), [(3, 8)]),  # fixed at 1: a batch of 1
        ([("x", FLOAT, [4, 3])], (), [(4, 3)]),  # fixed at more: one run is one sample
        ([("x", FLOAT, ["n", 3])], ("x=4x3",), [(4, 3)]),  # the user says that it is not a batch
        ([("x", FLOAT, ["n", 3]), ("y", FLOAT, [])], ("x=2x3",), [(2, 3), ()]),
        ([("x", FLOAT, ["n", 3]), ("y", FLOAT, ["m", 3])], ("x=1x3", "y=7x3"), [(1, 3), (7, 3)]),
        ([("x", FLOAT, None)], ("x=4x2",), [(4, 2)]),
    ],
)
def test_what_takes_one_sample_at_a_time(
    tmp_path: Path, inputs: list[Tensor], shapes: tuple[str, ...], expected: list[tuple[int, ...]]
) -> None:
    path = declared(tmp_path / "m.onnx", *inputs)
    found = network(path, shapes=shapes)
    assert [each.shape for each in found.inputs] == expected
    assert found.fixed_batch == 1
    assert own_model(path, shapes=shapes).single


def test_every_type_is_drawn_within_its_range(tmp_path: Path) -> None:
    path = declared(tmp_path / "m.onnx", ("f", FLOAT, ["n", 50]), ("b", BOOL, ["n", 50]), ("u", UINT8, ["n", 50]))
    drawn = network(path, ranges=("f=-2..0.5", "u=0..255")).samples(40, 1)
    assert {name: values.dtype.name for name, values in drawn.items()} == {"f": "float32", "b": "bool", "u": "uint8"}
    assert -2.0 <= drawn["f"].min() < -1.9
    assert 0.4 < drawn["f"].max() <= 0.5
    assert (drawn["u"].min(), drawn["u"].max()) == (0, 255)
    assert set(np.unique(drawn["b"])) == {False, True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": ("idz=1x4",)}, "unknown input of the model 'idz'"),
        ({"shapes": ("1x4",)}, "names no input"),
        ({"shapes": ("ids=4",)}, "cannot have the shape 4: the file declares"),
        ({"shapes": ("ids=1x0",)}, "has no sizes"),
        ({"shapes": ("ids=1xN",)}, "has no sizes"),
        ({"shapes": ("ids=1x4",), "ranges": ("ids=9..1",)}, "is not a range"),
        ({"shapes": ("ids=1x4",), "ranges": ("ids=9",)}, "is not a range"),
        ({"shapes": ("ids=1x4",), "ranges": ("ids=0..nan",)}, "is not a range"),
        ({"shapes": ("ids=1x4",), "ranges": ("ids=0..1.5",)}, "does not fit the input's type int64"),
        ({"shapes": ("ids=1x4",), "ranges": ("ids=0..1e30",)}, "does not fit the input's type int64"),
        ({"shapes": ("ids=1x4",), "sha256": "0" * 64}, "it changed since the plan was made"),
    ],
)
def test_options_that_do_not_fit_the_file(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GputaxError, match=message):
        network(small_text_model(tmp_path / "m.onnx"), **options)


def test_texts_cannot_be_drawn(tmp_path: Path) -> None:
    path = declared(tmp_path / "m.onnx", ("words", TensorProto.STRING, ["n"]))
    with pytest.raises(PreflightError, match="no values can be made for the input words"):
        network(path)


class TestOwnSamples:
    def test_are_used_in_their_order_and_give_the_free_axes(self, tmp_path: Path) -> None:
        ids = np.arange(15, dtype=np.int64).reshape(3, 5)
        np.savez(tmp_path / "in.npz", ids=ids)
        own = own_model(small_text_model(tmp_path / "m.onnx"), inputs=tmp_path / "in.npz")
        found = own_network(own)
        assert np.array_equal(found.samples(7, 1)["ids"], ids[[0, 1, 2, 0, 1, 2, 0]])
        assert found.samples_text == f"in.npz@{own.inputs_sha256[:12]}: ids int64 [batch, 5]"
        np.savez(tmp_path / "in.npz", ids=ids + 1)
        with pytest.raises(PreflightError, match="the inputs changed"):
            own_network(own)

    def test_of_a_network_without_a_batch_axis(self, tmp_path: Path) -> None:
        path = declared(tmp_path / "m.onnx", ("x", FLOAT, [4, 3]))
        for shape in ((4, 3), (2, 4, 3)):
            np.savez(tmp_path / "in.npz", x=np.zeros(shape, np.float32))
            assert network(path, inputs=str(tmp_path / "in.npz")).samples(2, 1)["x"].shape == (2, 4, 3)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"idz": np.zeros((2, 4), np.int64)}, "the file has idz; the model's inputs are ids"),
            ({"ids": np.zeros((2, 4), np.int32)}, "ids is int32, the model takes int64"),
            ({"ids": np.zeros((0, 4), np.int64)}, "holds no sample"),
            ({"ids": np.zeros((2, 4, 1), np.int64)}, "cannot have the shape"),
            ({"ids": np.array([None])}, "cannot read the inputs"),
        ],
    )
    def test_that_do_not_fit(self, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
        np.savez(tmp_path / "in.npz", **arrays)
        with pytest.raises(GputaxError, match=message):
            network(small_text_model(tmp_path / "m.onnx"), inputs=str(tmp_path / "in.npz"))

    def test_that_are_not_there_or_not_arrays(self, tmp_path: Path) -> None:
        path = small_text_model(tmp_path / "m.onnx")
        with pytest.raises(PreflightError, match="cannot read the inputs"):
            own_model(path, inputs=tmp_path / "none.npz")
        (tmp_path / "in.npz").write_text("text")
        with pytest.raises(PreflightError, match="cannot read the inputs"):
            own_model(path, inputs=tmp_path / "in.npz")


def test_large_samples_are_fewer(tmp_path: Path) -> None:
    found = network(declared(tmp_path / "m.onnx", ("x", FLOAT, ["n", 4096, 4096])))
    assert found.sample_count(64, 1) == 4
    assert found.sample_count(64, 8) == 8
