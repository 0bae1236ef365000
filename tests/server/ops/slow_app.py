"""A small application for `test_slow_clients`, served by the product's own worker with short deadlines."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any

from kvaudit.server.ops import web_connections

for _name in (
    "HEAD_SECONDS",
    "GRACE_SECONDS",
    "IDLE_SECONDS",
    "PRESSED_SECONDS",
    "MOST_CONNECTIONS",
    "MOST_SPOOLED",
):
    if _name in os.environ:
        setattr(web_connections, _name, type(getattr(web_connections, _name))(os.environ[_name]))


def application(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/large":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"x" * 100_000 for _ in range(400))
    if path == "/page":
        size = int(environ["QUERY_STRING"] or 3_000_000)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
        return [b"x" * size]
    if path == "/wait":
        while not os.path.exists(environ["QUERY_STRING"]):
            time.sleep(0.01)
    said = {
        "script": environ["SCRIPT_NAME"],
        "scheme": environ["wsgi.url_scheme"],
        "path": path,
        "pid": os.getpid(),
    }
    if environ["REQUEST_METHOD"] == "POST":
        digest, count = hashlib.sha256(), 0
        try:
            while piece := environ["wsgi.input"].read(65_536):
                digest.update(piece)
                count += len(piece)
        except OSError as fault:
            said["fault"] = str(fault)
        said |= {"digest": digest.hexdigest(), "count": count}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(said).encode()]
