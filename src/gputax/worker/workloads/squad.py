"""SQuAD for BERT: questions and contexts as tokens, answers from logits, and the F1 of the answers."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import PreflightError

# MLPerf's sizes (language/bert): windows of 384 tokens, 128 apart, and at most 64 tokens of the question.
SEQUENCE, STRIDE, MOST_QUESTION = 384, 128, 64
BEST, LONGEST_ANSWER = 20, 30
DATA, VOCABULARY = "dev-v1.1.json", "vocab.txt"
_LONGEST_WORD = 200


@dataclass(frozen=True)
class Piece:
    """One token of a text: its number in the vocabulary, and where it stands."""

    token: int
    begin: int
    end: int


@dataclass(frozen=True)
class Question:
    """One question with the answers that people gave."""

    name: str
    text: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Feature:
    """One window of a context behind its question: a sample."""

    question: int
    """Index of its question."""
    ids: tuple[int, ...]
    first: int
    """Where the context begins among the ids."""
    pieces: tuple[Piece, ...]
    """The context's tokens in this window."""
    central: tuple[bool, ...]
    """For each of them, whether no other window shows more on both of its sides."""


def read_features(folder: Path, sequence: int = SEQUENCE) -> tuple[tuple[Question, ...], tuple[Feature, ...]]:
    """Read `dev-v1.1.json` and `vocab.txt`, and cut every context into windows."""
    vocabulary = {word: number for number, word in enumerate(_text(folder / VOCABULARY).splitlines())}
    for special in ("[CLS]", "[SEP]", "[UNK]"):
        if special not in vocabulary:
            raise PreflightError(f"{VOCABULARY} has no {special}", where=str(folder / VOCABULARY))
    questions = tuple(_questions(folder / DATA))
    if not questions:
        raise PreflightError("the dataset has no questions", where=str(folder / DATA))
    features = [
        each for number, question in enumerate(questions) for each in windows(number, question, vocabulary, sequence)
    ]
    return questions, tuple(features)


def inputs_of(features: Sequence[Feature], sequence: int = SEQUENCE) -> dict[str, npt.NDArray[np.int64]]:
    """Return the samples: ids, mask and segments, padded with zeros."""
    ids, mask, segments = (np.zeros((len(features), sequence), dtype=np.int64) for _ in range(3))
    for row, feature in enumerate(features):
        ids[row, : len(feature.ids)] = feature.ids
        mask[row, : len(feature.ids)] = 1
        segments[row, feature.first : len(feature.ids)] = 1
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PreflightError(
            f"cannot read {path.name} ({getattr(error, 'strerror', None) or 'not a text file'})",
            where=str(path),
            next_step=f"a dataset for bert-large is a folder with {DATA} and {VOCABULARY}",
        ) from error


def _questions(path: Path) -> Iterator[Question]:
    try:
        for article in json.loads(_text(path))["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    answers = tuple(answer["text"] for answer in asked["answers"])
                    yield Question(str(asked["id"]), asked["question"], paragraph["context"], answers)
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"not a SQuAD file: {error!r}", where=str(path)) from error


def pieces_of(text: str, vocabulary: Mapping[str, int]) -> list[Piece]:
    """Cut a text into words, and words into the longest pieces that the vocabulary has, in lower case."""
    found: list[Piece] = []
    for begin, end in _words(text):
        found += _word_pieces(text, begin, end, vocabulary)
    return found


def _words(text: str) -> Iterator[tuple[int, int]]:
    begin = -1
    for place, letter in enumerate(text):
        alone = _is_punctuation(letter)
        if begin >= 0 and (alone or letter.isspace()):
            yield begin, place
            begin = -1
        if alone:
            yield place, place + 1
        elif begin < 0 and not letter.isspace():
            begin = place
    if begin >= 0:
        yield begin, len(text)


def _is_punctuation(letter: str) -> bool:
    return letter in string.punctuation or unicodedata.category(letter).startswith("P")


def _word_pieces(text: str, begin: int, end: int, vocabulary: Mapping[str, int]) -> list[Piece]:
    """Return the pieces of one word; a word that cannot be cut whole is unknown."""
    # Without accents a letter may become none or several: each keeps the place of the letter it came from.
    letters = [
        (plain, place)
        for place in range(begin, end)
        for plain in unicodedata.normalize("NFD", text[place].lower())
        if unicodedata.category(plain) != "Mn"
    ]
    unknown = [Piece(vocabulary["[UNK]"], begin, end)]
    if len(letters) > _LONGEST_WORD:
        return unknown
    found: list[Piece] = []
    at = 0
    while at < len(letters):
        for stop in range(len(letters), at, -1):
            word = ("##" if at else "") + "".join(letter for letter, _ in letters[at:stop])
            if word in vocabulary:
                found.append(Piece(vocabulary[word], letters[at][1], letters[stop - 1][1] + 1))
                at = stop
                break
        else:
            return unknown
    return found


def windows(
    number: int, question: Question, vocabulary: Mapping[str, int], sequence: int = SEQUENCE
) -> Iterator[Feature]:
    """Cut a context into overlapping windows behind its question."""
    asked = [piece.token for piece in pieces_of(question.text, vocabulary)][:MOST_QUESTION]
    pieces = pieces_of(question.context, vocabulary)
    head = [vocabulary["[CLS]"], *asked, vocabulary["[SEP]"]]
    room = sequence - len(head) - 1
    spans = [(0, min(room, len(pieces)))]
    while spans[-1][1] < len(pieces):
        begin = spans[-1][0] + min(STRIDE, room)
        spans.append((begin, min(begin + room, len(pieces))))
    for begin, end in spans:
        shown = tuple(pieces[begin:end])
        central = tuple(_is_central(place, (begin, end), spans) for place in range(begin, end))
        ids = (*head, *(piece.token for piece in shown), vocabulary["[SEP]"])
        yield Feature(number, ids, len(head), shown, central)


def _is_central(place: int, own: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    def score(span: tuple[int, int]) -> float:
        return min(place - span[0], span[1] - 1 - place) + 0.01 * (span[1] - span[0])

    holding = [span for span in spans if span[0] <= place < span[1]]
    return max(holding, key=score) == own


def answers_of(
    questions: Sequence[Question], features: Sequence[Feature], logits: Mapping[int, npt.NDArray[np.float32]]
) -> list[str]:
    """Return the likeliest answer to each question: `logits` has [token, (start, end)] of each feature."""
    best: dict[int, tuple[float, str]] = {}
    for number, feature in enumerate(features):
        starts, ends = logits[number][:, 0], logits[number][:, 1]
        text = questions[feature.question].context
        for start in _largest(starts):
            for end in _largest(ends):
                low, high = start - feature.first, end - feature.first
                if not 0 <= low <= high < len(feature.pieces) or high - low >= LONGEST_ANSWER:
                    continue
                if not feature.central[low]:
                    continue
                score = float(starts[start] + ends[end])
                if feature.question not in best or score > best[feature.question][0]:
                    best[feature.question] = (score, text[feature.pieces[low].begin : feature.pieces[high].end])
    return [best.get(number, (0.0, ""))[1] for number in range(len(questions))]


def _largest(values: npt.NDArray[np.float32]) -> list[int]:
    found: list[int] = np.argsort(values)[::-1][:BEST].tolist()
    return found


def mean_f1(answers: Sequence[str], questions: Sequence[Question]) -> float:
    """Return the mean over all questions of the best F1 against one of their answers, in percent."""
    scores = [
        max((f1(answer, given) for given in question.answers), default=0.0)
        for answer, question in zip(answers, questions, strict=True)
    ]
    return 100.0 * sum(scores) / len(scores)


def f1(answer: str, given: str) -> float:
    """Return the harmonic mean of precision and recall of the words that two answers share."""
    ours, theirs = _normalised(answer), _normalised(given)
    common = sum((Counter(ours) & Counter(theirs)).values())
    if not common:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def _normalised(text: str) -> list[str]:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def responses(data: Sequence[Mapping[str, Any]]) -> dict[int, npt.NDArray[np.float32]]:
    """Return the logits by sample from the entries of LoadGen's accuracy log."""
    return {
        int(entry["qsl_idx"]): np.frombuffer(bytes.fromhex(entry["data"]), np.float32).reshape(-1, 2) for entry in data
    }
