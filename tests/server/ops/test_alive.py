"""Health checks of containers."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kvaudit.server.ops import alive, ready
from tests.server.ops.running import free_port


def test_a_fresh_file_is_life_and_an_old_or_missing_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alive"
    monkeypatch.setenv("KVAUDIT_ALIVE_FILE", str(path))
    assert alive.main([]) == 1
    path.touch()
    assert alive.main([]) == 0
    old = path.stat().st_mtime - 61
    os.utime(path, (old, old))
    assert alive.main(["60"]) == 1
    assert alive.main(["120"]) == 0
    monkeypatch.delenv("KVAUDIT_ALIVE_FILE")
    assert alive.main([]) == 1


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_ready_is_200_only(status: int, code: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert ready.main([f"http://127.0.0.1:{server.server_port}/readyz"]) == code
        thread.join()


def test_nobody_listening_is_not_ready() -> None:
    assert ready.main([f"http://127.0.0.1:{free_port()}/readyz"]) == 1
    assert ready.main([]) == 1
