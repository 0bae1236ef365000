"""Logs: one JSON object a line on standard error, from Django, Celery and structlog alike."""

from __future__ import annotations

from typing import Any

import structlog

_BEFORE_RENDERING: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_config(level: str) -> dict[str, Any]:
    """A `logging.config` dictionary; exceptions become one field of the line, never loose text."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _BEFORE_RENDERING,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    structlog.processors.JSONRenderer(default=str),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # A line per request belongs to the proxy; what fails is still said.
            "django.server": {"level": "WARNING", "handlers": ["stderr"], "propagate": False},
            # A line per tick of beat would fill a disk; what fails is an error and is said.
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpcore": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Send structlog's events through the standard handlers above."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_BEFORE_RENDERING,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
