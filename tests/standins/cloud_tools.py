"""A stand-in for gcloud, docker, podman and gke-gcloud-auth-plugin: it checks every call and keeps a small world.

Called with the tool's name as its first word. `$GPUTAX_STANDIN` is its directory: `calls.jsonl` (every call),
`world.json` (what exists), `fail.json` (which call is to fail, and how), `violations.txt` (calls that the real tools
would refuse).
gcloud's flags are those of Google Cloud SDK 528.0.0, recorded with `gcloud meta lint-gcloud-commands`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

HOME = Path(os.environ["GPUTAX_STANDIN"])
TABLE = json.loads(Path(__file__).with_name("gcloud_528.json").read_text())
NOT_FOUND = "ERROR: (gcloud) NOT_FOUND: Requested entity was not found."
DOCKER_FLAGS = {"build": {"--platform", "--target", "--file", "--tag"}, "push": set()}


class World:
    """What the stand-in's cloud contains, kept between calls."""

    def __init__(self) -> None:
        self.path = HOME / "world.json"
        self.data = json.loads(self.path.read_text()) if self.path.exists() else {}

    def has(self, kind: str, name: str) -> bool:
        return name in self.data.get(kind, {})

    def put(self, kind: str, name: str, value: object = True) -> None:
        self.data.setdefault(kind, {})[name] = value
        self.path.write_text(json.dumps(self.data))

    def drop(self, kind: str, name: str) -> None:
        self.data.get(kind, {}).pop(name, None)
        self.path.write_text(json.dumps(self.data))


def violate(text: str) -> None:
    with (HOME / "violations.txt").open("a") as file:
        file.write(text + "\n")
    fail(f"stand-in: {text}", 2)


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


def planned_failure(line: str, moment: str) -> None:
    """Fail, or hang, where the test asked for it; `times` counts down."""
    path = HOME / "fail.json"
    if not path.exists():
        return
    wish = json.loads(path.read_text())
    if wish["match"] not in line or wish.get("moment", "before") != moment or wish.get("times", 1) < 1:
        return
    path.write_text(json.dumps({**wish, "times": wish.get("times", 1) - 1}))
    if wish.get("hang"):
        (HOME / "hanging.new").write_text(str(os.getpid()))
        (HOME / "hanging.new").rename(HOME / "hanging")  # whole from the moment that it is there
        time.sleep(60)
    fail(wish.get("output", "ERROR: (gcloud) something broke"), wish.get("exit", 1))


def parsed(words: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Split a gcloud call into its command, names and flags, and hold both against the recorded table."""
    command = next((" ".join(words[:n]) for n in (4, 3, 2) if " ".join(words[:n]) in TABLE), "")
    if not command:
        violate(f"not recorded: gcloud {' '.join(words)}")
    entry = TABLE[command]
    names, flags = [], {}
    for word in words[len(command.split()) :]:
        if not word.startswith("--"):
            names.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in entry["values"] + entry["switches"]:
            violate(f"gcloud {command} knows no {flag}")
        if bool(equals) == (flag in entry["switches"]):
            violate(f"gcloud {command} {flag}: {'no value allowed' if equals else 'a value is needed'}")
        flags[flag] = value
    if len(names) < len(entry["required"]) or (names and not entry["positional"]):
        violate(f"gcloud {command}: {len(names)} names")
    return command, names, flags


def gcloud(words: list[str], world: World) -> None:
    command, names, flags = parsed(words)
    group, _, verb = command.rpartition(" ")
    if command not in ("auth list", "config get-value", "projects describe") and "--project" not in flags:
        violate(f"gcloud {command} names no project")
    if command == "auth list":
        print(os.environ.get("STANDIN_ACCOUNT", "someone@example.com"))
    elif command == "config get-value":
        print(os.environ.get("STANDIN_PROJECT", ""))
    elif command == "projects describe":
        if names[0] != os.environ.get("STANDIN_PROJECT_EXISTS", names[0]):
            fail("ERROR: (gcloud.projects.describe) does not have permission to access projects instance [x]")
        print("ACTIVE")
    elif command == "compute regions describe":
        print(json.dumps({"quotas": json.loads(os.environ.get("STANDIN_QUOTAS", "[]"))}))
    elif command == "services enable":
        for name in names:
            world.put("apis", name)
    elif command == "services list":
        print("\n".join(world.data.get("apis", {})))
    elif command == "auth configure-docker":
        world.put("registries", names[0])
    elif command == "artifacts docker images delete":
        if not world.has("pushed", names[0]):
            fail(NOT_FOUND)
        world.drop("pushed", names[0])
    elif command == "logging read":
        print(os.environ.get("STANDIN_CLOUD_LOG", ""))
    elif group == "artifacts repositories":
        resource(world, "repositories", verb, names[0], "DOCKER")
    elif group == "container node-pools":
        if not world.has("clusters", flags["--cluster"]):
            fail(NOT_FOUND) if verb == "describe" else violate(f"{verb} of a node pool without its cluster")
        resource(world, "pools", verb, names[0], "RUNNING")
    elif command == "container clusters resize":
        if not world.has("pools", flags["--node-pool"]):
            fail(NOT_FOUND)
    elif command == "container clusters get-credentials":
        if not world.has("clusters", names[0]):
            violate("get-credentials without a cluster")
        Path(os.environ["KUBECONFIG"]).write_text((HOME / "kubeconfig").read_text())
    else:
        if verb == "create" and not world.has("apis", "container.googleapis.com"):
            violate("clusters create before its API is enabled")
        resource(world, "clusters", verb, names[0], "RUNNING")
        if verb == "delete":
            world.drop("pools", "gpu")


def resource(world: World, kind: str, verb: str, name: str, status: str) -> None:
    if verb == "create":
        if world.has(kind, name):
            fail(f"ERROR: (gcloud) ALREADY_EXISTS: {name}")
        world.put(kind, name, status)
        return
    if not world.has(kind, name):
        fail(NOT_FOUND)
    if verb == "describe":
        print(world.data[kind][name])
    elif verb == "delete":
        world.drop(kind, name)


def docker(words: list[str], world: World) -> None:
    verb = words[0]
    if verb not in DOCKER_FLAGS:
        violate(f"docker {verb} is not recorded")
    flags = dict(word.split("=", 1) for word in words[1:] if word.startswith("--"))
    if set(flags) - DOCKER_FLAGS[verb]:
        violate(f"docker {verb}: {sorted(set(flags) - DOCKER_FLAGS[verb])}")
    if verb == "build":
        if not Path(flags["--file"]).is_file() or words[-1] != ".":
            fail("ERROR: failed to read dockerfile: no such file or directory")
        world.put("images", flags["--tag"])
        return
    image = words[-1]
    if not world.has("images", image):
        violate("push of an image that was not built")
    if not world.has("registries", image.split("/")[0]):
        fail("denied: Unauthenticated request")
    world.put("pushed", image)


def main() -> None:
    tool, words = sys.argv[1], sys.argv[2:]
    line = " ".join([tool, *words])
    with (HOME / "calls.jsonl").open("a") as file:
        file.write(json.dumps([tool, *words]) + "\n")
    planned_failure(line, "before")
    world = World()
    if tool == "gcloud":
        gcloud(words, world)
    elif tool in ("docker", "podman"):
        docker(words, world)
    else:
        violate(f"{tool} was not expected to be called")
    planned_failure(line, "after")


if __name__ == "__main__":
    main()
