"""Which cells belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gputax.compare.matching import match_cells
from gputax.errors import ResultsError
from gputax.results.importers.source import Source, SourceCell

Make = Callable[..., Any]
Key = tuple[str, str, int | None]


@pytest.fixture
def match(cell: Make, source: Make) -> Callable[[list[Key], list[Key]], tuple[list[tuple[Key, Key]], list[str]]]:
    def made(name: str, keys: list[Key]) -> Source:
        built: Source = source(name, *(cell(workload=w, scenario=s, batch_size=b) for w, s, b in keys))
        return built

    def key(found: SourceCell) -> Key:
        return found.workload, found.scenario, found.batch_size

    def call(base: list[Key], other: list[Key]) -> tuple[list[tuple[Key, Key]], list[str]]:
        pairs, notices = match_cells(made("base", base), made("other", other))
        return [(key(pair.base), key(pair.other)) for pair in pairs], [notice.text for notice in notices]

    return call


OFFLINE_8, OFFLINE_32 = ("resnet50", "offline", 8), ("resnet50", "offline", 32)
BERT_8, SERVER_8 = ("bert-large", "offline", 8), ("resnet50", "server", 8)


def test_equal_names_belong_together_in_the_bases_order(match: Make) -> None:
    pairs, notices = match([OFFLINE_32, SERVER_8, OFFLINE_8], [OFFLINE_8, OFFLINE_32, SERVER_8])
    assert pairs == [(OFFLINE_32, OFFLINE_32), (SERVER_8, SERVER_8), (OFFLINE_8, OFFLINE_8)]
    assert notices == []


def test_who_has_no_partner_is_told(match: Make) -> None:
    pairs, notices = match([OFFLINE_8, OFFLINE_32], [OFFLINE_8, SERVER_8])
    assert pairs == [(OFFLINE_8, OFFLINE_8)]
    assert [text.split(" has no")[0] for text in notices] == [
        "not compared: resnet50 offline batch 32 of base",
        "not compared: resnet50 server batch 8 of other",
    ]


def test_an_unknown_name_fits_where_only_one_is_left(match: Make) -> None:
    pairs, notices = match([("unknown", "offline", 8), ("unknown", "server", None)], [OFFLINE_8, OFFLINE_32, SERVER_8])
    assert pairs == [(("unknown", "offline", 8), OFFLINE_8), (("unknown", "server", None), SERVER_8)]
    assert len(notices) == 1


def test_an_unknown_name_that_fits_several_fits_none(match: Make) -> None:
    pairs, notices = match([("unknown", "offline", 8), SERVER_8], [OFFLINE_8, BERT_8, SERVER_8])
    assert pairs == [(SERVER_8, SERVER_8)]
    assert len(notices) == 3


def test_the_same_name_twice_is_no_partner(match: Make) -> None:
    pairs, _ = match([OFFLINE_8, SERVER_8], [OFFLINE_8, OFFLINE_8, SERVER_8])
    assert pairs == [(SERVER_8, SERVER_8)]


def test_two_texts_that_name_nothing_belong_together(match: Make) -> None:
    nothing = ("unknown", "unknown", None)
    assert match([nothing], [nothing])[0] == [(nothing, nothing)]


def test_two_single_cells_are_meant_even_if_they_differ(match: Make) -> None:
    assert match([OFFLINE_8], [OFFLINE_32])[0] == [(OFFLINE_8, OFFLINE_32)]


def test_nothing_in_common_is_an_error_that_lists_both(match: Make) -> None:
    with pytest.raises(ResultsError, match="no cell of other matches a cell of base") as raised:
        match([OFFLINE_8, OFFLINE_32], [SERVER_8])
    assert "resnet50 offline batch 32" in raised.value.where
    assert "resnet50 server batch 8" in raised.value.where


def test_tenants_are_part_of_the_name(cell: Make, source: Make) -> None:
    alone, three = cell(tenants=1), cell(tenants=3)
    pairs, notices = match_cells(source("base", alone, three), source("other", three))
    assert [(pair.base.tenants, pair.other.tenants) for pair in pairs] == [(3, 3)]
    assert (alone.title, three.title) == ("resnet50 single-stream batch 1", "resnet50 single-stream batch 1 x3")
    assert len(notices) == 1
