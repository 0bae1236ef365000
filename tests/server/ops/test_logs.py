"""Logs are JSON lines, whoever writes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.server.ops.running import REPOSITORY

CODE = """
import logging, logging.config, structlog
from kvaudit.server.ops.logs import configure_structlog, logging_config
logging.config.dictConfig(logging_config("INFO"))
configure_structlog()
logging.getLogger("django.request").warning("from %s", "logging")
structlog.get_logger("kvaudit").info("from structlog", run=7)
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("kvaudit").exception("broke")
logging.getLogger("httpx").info("a URL with a key: never")
logging.getLogger("kvaudit").debug("below the level")
"""


def test_every_line_is_one_object() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={"PATH": os.environ["PATH"]},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    first, second, third = (json.loads(line) for line in done.stderr.splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("from logging", "warning", "django.request")
    assert (second["event"], second["run"]) == ("from structlog", 7)
    assert third["event"] == "broke"
    assert "ZeroDivisionError" in third["exception"]
    assert all(line["timestamp"].endswith("Z") for line in (first, second, third))
