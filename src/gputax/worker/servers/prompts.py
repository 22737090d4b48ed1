"""The prompts of a language model's requests: drawn from a seed to a stated length, or read from a file."""

from __future__ import annotations

import json
import random
from pathlib import Path

from gputax.errors import UsageError

# Short English words are one token each in the usual vocabularies (with the space before them), so that a prompt of N
# words has about N tokens; the server says how many it counted.
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "government", "number", "night", "point", "home", "water", "room", "mother", "area",
    "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue",
    "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member",
    "law", "car", "city", "name", "team", "minute", "idea", "body", "back", "parent", "face", "level", "office",
    "door", "health", "person", "art", "war", "history", "party", "result", "change", "morning", "reason", "research",
    "girl", "guy", "moment", "air", "teacher", "force", "order", "light", "ground", "paper", "space", "rule", "river",
)  # fmt: skip
MOST_PROMPTS, LARGEST_FILE = 100_000, 256 << 20


def drawn_prompts(count: int, tokens: int, seed: int) -> list[str]:
    """Return prompts of about this many tokens; they differ from the first word on: no cache shares a prefix."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=max(1, tokens))) for _ in range(count)]


def read_prompts(path: str) -> list[str]:
    """Return the prompts of a file: a JSON object with `prompt` on each line, or plain text, one per line."""
    try:
        if Path(path).stat().st_size > LARGEST_FILE:
            raise UsageError(f"larger than {LARGEST_FILE >> 20} MB: not a file of prompts", where=path)
        lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompts cannot be read: {error}", where=path) from error
    if not lines:
        raise UsageError("the file has no prompt", where=path, next_step="one prompt per line")
    return [_prompt(line, number, path) for number, line in enumerate(lines[:MOST_PROMPTS], 1)]


def _prompt(line: str, number: int, path: str) -> str:
    if not line.lstrip().startswith("{"):
        return line
    try:
        found = json.loads(line)["prompt"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"line {number} is not a JSON object with `prompt`", where=path) from error
    if not isinstance(found, str) or not found:
        raise UsageError(f"the prompt of line {number} is not a text", where=path)
    return found
