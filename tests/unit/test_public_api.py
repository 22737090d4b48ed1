"""The public functions: light to import, typed, and reachable beside the packages of the same name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import gputax
from gputax import api
from gputax.errors import ResultsError, UsageError
from gputax.results.documents.run import RunRecord
from gputax.results.reading import RUN
from gputax.results.store import ResultDirectory
from tests.builders.documents import record

REPOSITORY = Path(__file__).parents[2]


def written(directory: Path) -> RunRecord:
    made = record()
    store = ResultDirectory(directory, RUN)
    try:
        store.write_document(made)
    finally:
        store.close()
    return made


def test_every_public_name_is_a_documented_typed_function() -> None:
    page = (REPOSITORY / "docs/python.md").read_text()
    for name in gputax.PUBLIC:
        function = getattr(api, name)
        assert function.__doc__, name
        assert f"`{name}(" in page, name
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, (name, parameter.name)


def test_the_stub_for_type_checkers_names_the_same_functions() -> None:
    stub = (REPOSITORY / "src/gputax/__init__.pyi").read_text()
    assert tuple(re.findall(r"^from gputax.api import (\w+) as \1$", stub, flags=re.M)) == gputax.PUBLIC


def test_functions_stay_reachable_after_the_packages_of_the_same_name_are_imported() -> None:
    import gputax.advise.advice
    import gputax.compare.document
    import gputax.report.story

    for name in ("advise", "compare", "report"):
        assert callable(getattr(gputax, name))
    package: Any = gputax.report
    assert package.story.build_report
    with pytest.raises(UsageError, match="no target or rate is given"):
        gputax.advise("published:a100-nos")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'benchmark'"):
        gputax.benchmark  # type: ignore[attr-defined]  # noqa: B018


def test_results_are_read_as_the_document_that_was_written(tmp_path: Path) -> None:
    made = written(tmp_path / "run")
    assert gputax.read_results(tmp_path / "run") == made


def test_two_results_in_one_place_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name)
    with pytest.raises(ResultsError, match="found 2 results, expected one"):
        gputax.read_results(tmp_path)


def test_a_variable_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown option 'soft_kernel_uss'") as raised:
        gputax.run((), soft_kernel_uss=125)
    assert "did you mean 'soft_kernel_us'?" in raised.value.next_step


def test_a_plan_without_cells_is_refused() -> None:
    with pytest.raises(UsageError, match="the plan has no cells"):
        gputax.run(())
