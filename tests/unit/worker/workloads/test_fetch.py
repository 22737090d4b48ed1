"""Official files are fetched or found, checked by md5, pinned by sha256; without network it is said what to do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from gputax.errors import PreflightError, UsageError
from gputax.worker.workloads import fetch as fetching
from gputax.worker.workloads.fetch import OFFICIAL, OfficialFile, fetch, fetch_file, official_path
from gputax.worker.workloads.model_store import manifest_path

CONTENT = bytes(range(256)) * 9000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class _Server(BaseHTTPRequestHandler):
    """Serves CONTENT, half of it, or an error page."""

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_error(404)
            return
        body = CONTENT[:-1] + b"!" if self.path == "/other" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/half" else body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.fixture
def official(server: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> OfficialFile:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    md5 = hashlib.md5(CONTENT).hexdigest()
    return OfficialFile("resnet50", "resnet50_v1.onnx", f"{server}/file", md5, "about 2 MB")


def _no_network(url: str) -> Any:
    raise URLError("Name or service not known")


def test_a_download_is_checked_and_pinned(official: OfficialFile, models: Path) -> None:
    seen: list[tuple[int, int]] = []
    model = fetch_file(official, fetching._open_url, lambda *step: seen.append(step))
    assert model.path == models / "resnet50" / "resnet50_v1.onnx"
    assert model.path.read_bytes() == CONTENT
    assert (model.sha256, model.source, model.bytes) == (SHA256, "official", len(CONTENT))
    assert model.notes == (f"fetched {official.url}, md5 as published",)
    assert SHA256 in manifest_path(model.path).read_text()
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_second_fetch_needs_no_network(official: OfficialFile) -> None:
    fetch_file(official, fetching._open_url)
    again = fetch_file(official, _no_network)
    assert again.sha256 == SHA256
    assert "was already there" in again.notes[0]


def test_a_damaged_file_is_fetched_again(official: OfficialFile) -> None:
    path = fetch_file(official, fetching._open_url).path
    path.write_bytes(CONTENT[:-1] + b"?")
    model = fetch_file(official, fetching._open_url)
    assert path.read_bytes() == CONTENT
    assert "has sha256" in model.notes[0]
    assert "fetched again" in model.notes[0]


def test_without_network_it_says_what_to_put_where(official: OfficialFile) -> None:
    with pytest.raises(PreflightError) as caught:
        fetch_file(official, _no_network)
    said = f"{caught.value.what} {caught.value.next_step}"
    for needed in (
        official.url,
        official.md5,
        official.size,
        str(official_path(official)),
        "gputax models fetch resnet50",
    ):
        assert needed in said


def test_a_file_put_there_by_hand_is_checked_and_pinned(official: OfficialFile) -> None:
    path = official_path(official)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    model = fetch_file(official, _no_network)
    assert model.sha256 == SHA256
    assert "found at its path" in model.notes[0]
    path.write_bytes(CONTENT + b"!")
    with pytest.raises(PreflightError, match="cannot fetch"):
        fetch_file(official, _no_network)


def test_a_wrong_file_put_there_by_hand_is_kept_and_refused(official: OfficialFile) -> None:
    path = official_path(official)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"another file of the same name")
    with pytest.raises(PreflightError) as caught:
        fetch_file(official, _no_network)
    assert official.md5 in caught.value.what
    assert hashlib.md5(b"another file of the same name").hexdigest() in caught.value.what
    assert path.read_bytes() == b"another file of the same name"
    assert not manifest_path(path).exists()


@pytest.mark.parametrize(
    ("page", "said"),
    [("other", "has md5"), ("half", "the connection closed after"), ("gone", "404")],
)
def test_a_bad_download_leaves_nothing(official: OfficialFile, models: Path, page: str, said: str) -> None:
    bad = replace(official, url=official.url.replace("/file", f"/{page}"))
    with pytest.raises(PreflightError, match=said):
        fetch_file(bad, fetching._open_url)
    assert [path.name for path in (models / "resnet50").iterdir()] == ["resnet50_v1.lock"]


def test_a_connection_that_breaks(official: OfficialFile) -> None:
    class Breaking:
        def __init__(self) -> None:
            self.headers: dict[str, str] = {}

        def read(self, size: int) -> bytes:
            raise ConnectionResetError("Connection reset by peer")

    @contextmanager
    def opener(url: str) -> Iterator[Breaking]:
        yield Breaking()

    with pytest.raises(PreflightError, match="reset by peer"):
        fetch_file(official, opener)


def test_a_size_that_does_not_fit_is_noticed_first(official: OfficialFile, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(PreflightError, match="not enough disk space"):
        fetch_file(official, fetching._open_url)


def test_fetch_uses_the_table(official: OfficialFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OFFICIAL, "resnet50", official)
    assert fetch("resnet50").sha256 == SHA256


def test_the_table_names_the_published_files() -> None:
    assert {name: (file.url, file.md5) for name, file in OFFICIAL.items()} == {
        "resnet50": (
            "https://zenodo.org/records/4735647/files/resnet50_v1.onnx",
            "f6a4da60cd5f084d97efc2c1ddb10beb",
        ),
        "bert-large": (
            "https://zenodo.org/records/3733910/files/model.onnx",
            "819b25b19cd8e59080c10892689750ca",
        ),
    }


def test_yolos_has_no_official_file(models: Path) -> None:
    with pytest.raises(UsageError, match="no official MLPerf file"):
        fetch("yolos-small")
    with pytest.raises(UsageError, match="unknown workload"):
        fetch("yolo")
