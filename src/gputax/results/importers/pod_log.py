"""The result block: a run record inside a pod's log, written and read here."""

from __future__ import annotations

import dataclasses

from gputax.errors import ResultsError
from gputax.plan.notices import Notice
from gputax.results.documents.run import RunRecord
from gputax.results.importers.record_source import source_of_record
from gputax.results.importers.source import Place, Source, without_prefix
from gputax.results.reading import RUN, checked, parse_json

BEGIN = "----- gputax result begin -----"
END = "----- gputax result end -----"


def result_block(record: RunRecord) -> str:
    """Return the block that a pod prints at the end.

    One key per line: container runtimes cut lines after 16 KB, and a record on one line would be longer.
    """
    return f"{BEGIN}\n{record.model_dump_json(indent=1)}\n{END}\n"


def read_block(text: str, where: str) -> tuple[RunRecord, int]:
    """Return the last record in a log and how many blocks there are; a truncated block is an error."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if line.rstrip().endswith(BEGIN)]
    if not begins:
        raise ResultsError("no result block in this log", where=where)
    begin = begins[-1]
    # An unknown prefix (stern, a logging agent) is the same on every line of one container.
    foreign = without_prefix(lines[begin]).rstrip().removesuffix(BEGIN)
    body = [without_prefix(line).removeprefix(foreign) for line in lines[begin + 1 :]]
    ends = [number for number, line in enumerate(body) if line.rstrip() == END]
    if not ends:
        raise ResultsError(
            f"the result block is truncated: it starts in line {begin + 1} and has no end",
            where=where,
            next_step="save the log again after the pod has ended",
        )
    data = parse_json("\n".join(body[: ends[0]]), where)
    return checked(RUN, data, where), len(begins)


def recognises(place: Place) -> bool:
    """Whether this file contains the start of a block."""
    return not place.is_directory and any(line.rstrip().endswith(BEGIN) for line in place.text.splitlines())


def read(place: Place) -> Source:
    """Read the record from the log; its samples stayed in the pod."""
    record, blocks = read_block(place.text, place.name)
    source = source_of_record(record, place.name, "pod-log", None)
    if blocks == 1:
        return source
    notice = Notice("many-blocks", f"the log contains {blocks} results: the last one is read", float(blocks))
    return dataclasses.replace(source, notices=(*source.notices, notice))
