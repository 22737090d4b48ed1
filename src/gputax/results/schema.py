"""Write the JSON Schema of the run record: `python -m gputax.results.schema FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gputax.results.record import RunRecord


def schema_text() -> str:
    """Return the schema as it is checked in."""
    schema = RunRecord.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gputax benchmark_results.json, schema version 1"
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text())
