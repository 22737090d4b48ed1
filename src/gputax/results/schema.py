"""Write the JSON Schemas of our documents: `python -m gputax.results.schema DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gputax.results.documents.comparison import COMPARISON_SCHEMA_VERSION, Comparison
from gputax.results.documents.run import SCHEMA_VERSION, Document, RunRecord
from gputax.results.documents.sharing import SHARING_SCHEMA_VERSION, SharingRecord

SCHEMAS: dict[str, tuple[type[Document], int]] = {
    "benchmark_results": (RunRecord, SCHEMA_VERSION),
    "comparison": (Comparison, COMPARISON_SCHEMA_VERSION),
    "sharing": (SharingRecord, SHARING_SCHEMA_VERSION),
}


def schema_text(name: str) -> str:
    """Return the schema of `NAME.json` as it is checked in."""
    document, version = SCHEMAS[name]
    schema = document.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"gputax {name}.json, schema version {version}"
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    for each in SCHEMAS:
        (Path(sys.argv[1]) / f"{each}.schema.json").write_text(schema_text(each))
