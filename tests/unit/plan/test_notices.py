"""Every kind of warning is one row of the catalogue, and warnings of one kind become one line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputax.plan.notices import CATALOGUE, Notice, page, remarks

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = REPOSITORY / "src/gputax"
# Calls whose first argument, or `code`, is the code of a warning.
MAKERS = ("Notice", "WarningRecord", "tell")


def constants_of(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def codes_made() -> Iterator[tuple[str, str]]:
    """The literal codes in the source, and where they are."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    everywhere = {name: text for tree in trees.values() for name, text in constants_of(tree).items()}
    for path, tree in trees.items():
        known = {**everywhere, **constants_of(tree)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            first = next(iter([*named, *node.args]), None)
            if name not in MAKERS or first is None:
                continue
            if isinstance(first, ast.Constant):
                yield str(first.value), f"{path.name}:{node.lineno}"
            elif isinstance(first, ast.Name) and first.id in known:
                yield known[first.id], f"{path.name}:{node.lineno}"


def test_every_warning_of_the_source_has_its_row() -> None:
    missing = [f"{code} ({place})" for code, place in codes_made() if code not in CATALOGUE]
    assert missing == []


def test_every_row_is_a_warning_of_the_source() -> None:
    assert set(CATALOGUE) - {code for code, _ in codes_made()} == set()


def test_a_row_says_what_it_means_and_what_to_do() -> None:
    for kind in CATALOGUE.values():
        assert kind.meaning.endswith("."), kind.code
        assert kind.action, kind.code
        assert "\n" not in kind.title + kind.meaning + kind.action, kind.code


def test_the_page_is_the_catalogue() -> None:
    assert (REPOSITORY / "docs/warnings.md").read_text() == page(), "make generated"


def test_warnings_of_one_kind_become_one_line_with_the_worst_value() -> None:
    placed = [
        (f"cell {i}", Notice("cpu-steal", f"{value} % withheld", value)) for i, value in enumerate([2.0, 19.0, 7.5])
    ]
    (remark,) = remarks(placed)
    assert remark.title == "CPU steal: up to 19 %"
    assert (remark.worst_place, remark.count) == ("cell 1", 3)


def test_the_worst_value_is_the_largest_in_size() -> None:
    (remark,) = remarks([("a", Notice("clock-jump", "back", -900.0)), ("b", Notice("clock-jump", "on", 20.0))])
    assert remark.title == "Wall clock jumped: up to 900 ms"


def test_kinds_keep_the_order_of_their_first_warning() -> None:
    placed = [("a", Notice("weights", "w")), ("a", Notice("cpu-steal", "s", 1.0)), ("b", Notice("weights", "w"))]
    assert [remark.worst.code for remark in remarks(placed)] == ["weights", "cpu-steal"]


def test_a_place_with_two_warnings_of_a_kind_is_named_once() -> None:
    (remark,) = remarks([("a", Notice("weights", "one")), ("a", Notice("weights", "two"))])
    assert (remark.places, remark.count) == (("a",), 2)


@pytest.mark.parametrize("value", [None, 3.0])
def test_a_warning_of_a_newer_version_keeps_its_text(value: float | None) -> None:
    (remark,) = remarks([("a", Notice("from-the-future", "something new", value))])
    assert remark.title == "something new"
