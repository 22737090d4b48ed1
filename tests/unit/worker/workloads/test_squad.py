"""SQuAD by hand: tokens with their places, windows, answers from logits, and F1."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gputax.errors import PreflightError
from gputax.worker.workloads.squad import (
    Question,
    answers_of,
    f1,
    inputs_of,
    mean_f1,
    pieces_of,
    read_features,
    windows,
)

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "who",
    "?",
    "the",
    "cafe",
    "in",
    "19",
    "##90",
    "-",
    "paris",
    "un",
    "##seen",
]
VOCABULARY = {word: number for number, word in enumerate(WORDS)}


def test_pieces_know_where_they_stand() -> None:
    text = "The Café in 1990-unseen, xyz"
    found = [(WORDS[piece.token], text[piece.begin : piece.end]) for piece in pieces_of(text, VOCABULARY)]
    assert found == [
        ("the", "The"), ("cafe", "Café"), ("in", "in"), ("19", "19"), ("##90", "90"), ("-", "-"), ("un", "un"),
        ("##seen", "seen"), ("[UNK]", ","), ("[UNK]", "xyz"),
    ]  # fmt: skip


def test_a_sample_is_question_and_context() -> None:
    question = Question("1", "Who?", "The cafe", ("cafe",))
    (feature,) = windows(0, question, VOCABULARY)
    inputs = inputs_of([feature])
    assert inputs["input_ids"][0, :8].tolist() == [2, 4, 5, 3, 6, 7, 3, 0]
    assert inputs["input_mask"][0, :8].tolist() == [1] * 7 + [0]
    assert inputs["segment_ids"][0, :8].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]
    assert inputs["input_ids"].shape == (1, 384)


def test_a_long_context_has_windows_and_each_token_one_centre() -> None:
    question = Question("1", "Who?", " ".join(["paris"] * 300), ("paris",))
    found = list(windows(0, question, VOCABULARY, sequence=160))
    # 155 tokens fit behind [CLS] who ? [SEP]; the next window begins 128 later.
    assert [len(feature.pieces) for feature in found] == [155, 155, 44]
    starts = [feature.pieces[0].begin // 6 for feature in found]
    assert starts == [0, 128, 256]
    centres = [start + place for start, feature in zip(starts, found, strict=True)
               for place, central in enumerate(feature.central) if central]  # fmt: skip
    assert sorted(centres) == list(range(300))


@pytest.mark.parametrize(
    ("answer", "given", "expected"),
    [
        ("The Café", "café", 1.0),
        ("in Paris", "Paris", 2 / 3),
        ("1990-1995", "19901995", 1.0),
        ("London", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("paris paris", "paris", 2 / 3),
    ],
)
def test_f1_by_hand(answer: str, given: str, expected: float) -> None:
    assert f1(answer, given) == pytest.approx(expected)


def test_the_best_answer_of_a_question_and_its_mean() -> None:
    questions = (
        Question("1", "Who?", "the cafe in paris", ("Paris", "in Paris")),
        Question("2", "Who?", "the cafe in paris", ("cafe",)),
    )
    features = [feature for number, each in enumerate(questions) for feature in windows(number, each, VOCABULARY)]
    logits = np.zeros((2, 384, 2), np.float32)
    logits[0, 6, 0] = logits[0, 7, 1] = 5.0  # "in paris": tokens 6 and 7 behind [CLS] who ? [SEP]
    logits[0, 2, 0] = 9.0  # a start inside of the question cannot be an answer
    logits[1, 4, 0] = logits[1, 5, 1] = 5.0  # "the cafe"
    logits[1, 7, 0] = 6.0  # a start behind every good end: less than the pair
    answers = answers_of(questions, features, dict(enumerate(logits)))
    assert answers == ["in paris", "the cafe"]
    assert mean_f1(answers, questions) == pytest.approx(100.0)
    assert mean_f1(["paris", "in paris"], questions) == pytest.approx(50.0)


def test_what_is_not_a_dataset_says_so(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"vocab\.txt"):
        read_features(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "dev-v1.1.json").write_text(json.dumps({"data": [{"title": "no paragraphs"}]}))
    with pytest.raises(PreflightError, match="not a SQuAD file"):
        read_features(tmp_path)
