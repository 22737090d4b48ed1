"""Write the JSON Schemas of our documents: `python -m gputax.results.schema DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gputax.results.reading import COMPARISON, RUN, SELFTEST, SHARING, DocumentKind

KINDS: tuple[DocumentKind[Any], ...] = (RUN, COMPARISON, SHARING, SELFTEST)
SCHEMAS = {kind.file_name.removesuffix(".json"): kind for kind in KINDS}


def schema_text(name: str) -> str:
    """Return the schema of `NAME.json` as it is checked in."""
    kind = SCHEMAS[name]
    schema = kind.document.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"gputax {name}.json, schema version {kind.schema_version}"
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    for each in SCHEMAS:
        (Path(sys.argv[1]) / f"{each}.schema.json").write_text(schema_text(each))
