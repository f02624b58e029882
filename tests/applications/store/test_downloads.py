"""Downloads against a server on loopback that misbehaves in every way there is."""

import hashlib
import http.server
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_attention.applications.errors import UserError
from keras_attention.applications.store import downloads

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves what the path asks for: /good.gz, /altered.gz, /short.gz, /silent.gz, /unsized.gz."""

    def do_GET(self):
        kind = self.path.rsplit("/", 1)[-1]
        self.server.requests.append(kind)
        if kind == "missing.gz":
            return self.send_error(404)
        body = CONTENT[:-1] + b"!" if kind == "altered.gz" else CONTENT
        self.send_response(200)
        if kind != "unsized.gz":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind in ("short.gz", "silent.gz"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if kind == "silent.gz":
                self.server.released.wait(30)
            return None
        if self.server.gate is not None:
            self.server.gate.wait(30)
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.gate, server.released = [], None, threading.Event()
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path))


def files(folder) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("name", ["good.gz", "unsized.gz"])
def test_good(server, tmp_path, name, capsys):
    path = downloads.fetch(f"{server.url}/data/{name}", SHA256, "set")
    assert path == tmp_path / "set" / name
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == [f"set/{name}"]
    assert f"Fetching {server.url}/data/{name}" in capsys.readouterr().err


def test_progress_does_not_go_where_results_go(server, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    downloads.fetch(f"{server.url}/good.gz", SHA256)
    written = capsys.readouterr()
    assert written.out == "" and "\r100% of 256,000 bytes\n" in written.err


@pytest.mark.parametrize(
    "name, message",
    [
        ("altered.gz", f".*expected sha256:{SHA256} but got [0-9a-f]{{64}}"),
        ("short.gz", "the download broke off"),
        ("silent.gz", "the download broke off .*timed out"),
        ("missing.gz", r"the server refused \(404 Not Found\)"),
    ],
)
def test_bad_downloads_leave_nothing(server, tmp_path, name, message, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 1.0)
    url = f"{server.url}/{name}"
    with pytest.raises(UserError, match=f"{url}: {message}") as error:
        downloads.fetch(url, SHA256, "set")
    assert "\n" not in str(error.value)
    assert files(tmp_path) == []


def test_server_gone(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    with pytest.raises(UserError, match=f"127.0.0.1:{port}/a.gz: the server cannot be reached"):
        downloads.fetch(f"http://127.0.0.1:{port}/a.gz", SHA256)
    assert files(tmp_path) == []


def test_a_good_file_is_not_fetched_again(server, tmp_path, capsys):
    (tmp_path / "good.gz").write_bytes(CONTENT)
    assert downloads.fetch(f"{server.url}/good.gz", SHA256).is_file()
    assert server.requests == []
    assert capsys.readouterr().err == ""


def test_a_damaged_file_is_named_and_fetched_again(server, tmp_path, capsys):
    path = tmp_path / "good.gz"
    path.write_bytes(CONTENT[:100])
    assert downloads.fetch(f"{server.url}/good.gz", SHA256) == path
    assert path.read_bytes() == CONTENT
    found = hashlib.sha256(CONTENT[:100]).hexdigest()
    assert f"{path}: damaged or out of date (SHA-256 {found}" in capsys.readouterr().err
    assert server.requests == ["good.gz"]


def test_a_failed_fetch_leaves_the_damaged_file(server, tmp_path):
    path = tmp_path / "short.gz"
    path.write_bytes(b"old")
    with pytest.raises(UserError, match="broke off"):
        downloads.fetch(f"{server.url}/short.gz", SHA256)
    assert path.read_bytes() == b"old"


def test_interrupted_by_the_user(server, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.move", interrupt)
    with pytest.raises(KeyboardInterrupt):
        downloads.fetch(f"{server.url}/good.gz", SHA256)
    assert files(tmp_path) == []


def test_several_at_once(server, tmp_path):
    server.gate = threading.Barrier(4)  # all four are under way before one gets its content
    with ThreadPoolExecutor(4) as pool:
        url = f"{server.url}/good.gz"
        paths = pool.map(lambda _: downloads.fetch(url, SHA256), range(4))
        assert {path.read_bytes() for path in paths} == {CONTENT}
    assert server.requests == ["good.gz"] * 4
    assert files(tmp_path) == ["good.gz"]


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "own"))
    assert downloads.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("KERAS_ATTENTION_CACHE")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert downloads.cache_folder() == tmp_path / "keras" / "keras_attention"
    monkeypatch.delenv("KERAS_HOME")
    home = os.path.expanduser("~")
    assert str(downloads.cache_folder()) == f"{home}/.keras/keras_attention"


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="Cannot write the download .*/file/good.gz"):
        downloads.fetch(f"{server.url}/good.gz", SHA256)


def test_url_without_a_name():
    with pytest.raises(UserError, match="ends in a file's name. Received: 'http://a.org/'"):
        downloads.fetch("http://a.org/", SHA256)
