"""A receiver of webhooks on loopback, and a message for it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kvaudit.server.notify import services
from kvaudit.server.notify.models import OutboxMessage
from tests import factories


class Receiver:
    """Keeps what it gets; answers with ``status``."""

    def __init__(self) -> None:
        self.status = 204
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", "http://169.254.169.254/")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/path-secret?k=v"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()


def a_message(url: str, kind: str = "webhook") -> OutboxMessage:
    services.create_channel(kind=kind, name="c", address=url, actor="system:tests")
    return services.enqueue(
        event="fail",
        subject="pool of glm-prod failed",
        payload={"summary": "The pool holds 681,280 tokens.", "next": "Raise it.", "run": 7},
        team=factories.a_team(),
    )[0]
