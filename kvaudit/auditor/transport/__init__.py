"""Sends every HTTP request of kvaudit; nothing else opens a connection.

A `Client` talks to one base URL. It refuses every path that is not on its allow-list before a
socket opens, connects only to addresses it has checked itself, follows no redirect, takes no proxy
from the environment, stops reading at a deadline and at a size, and redacts secrets before anyone
sees a body. Each failure is a `TransportError` whose text is a sentence for the person who can fix it.
"""

from kvaudit.auditor.transport.addresses import BaseURL, origin_of, parse_base_url
from kvaudit.auditor.transport.client import Client, Limits, Response, StreamedResponse, secrets_of
from kvaudit.auditor.transport.errors import (
    AddressDenied,
    BadEncoding,
    BadHeader,
    BadURL,
    BodyTooLarge,
    ConnectionDropped,
    ConnectionRefused,
    ConnectTimedOut,
    DeadlineExceeded,
    KeyForElsewhere,
    NameNotFound,
    NotHTTP,
    PathNotAllowed,
    Redirected,
    SilentServer,
    TLSFailed,
    TooManyFrames,
    TooManySecrets,
    TransportError,
    Unreachable,
)
from kvaudit.auditor.transport.forbidden_addresses import denied_reason
from kvaudit.auditor.transport.redaction import Redactor, redact_text
from kvaudit.auditor.transport.secret_names import secret_name
from kvaudit.auditor.transport.sse import Event, EventParser

__all__ = [
    "AddressDenied",
    "BadEncoding",
    "BadHeader",
    "BadURL",
    "BaseURL",
    "BodyTooLarge",
    "Client",
    "ConnectTimedOut",
    "ConnectionDropped",
    "ConnectionRefused",
    "DeadlineExceeded",
    "Event",
    "EventParser",
    "KeyForElsewhere",
    "Limits",
    "NameNotFound",
    "NotHTTP",
    "PathNotAllowed",
    "Redactor",
    "Redirected",
    "Response",
    "SilentServer",
    "StreamedResponse",
    "TLSFailed",
    "TooManyFrames",
    "TooManySecrets",
    "TransportError",
    "Unreachable",
    "denied_reason",
    "origin_of",
    "parse_base_url",
    "redact_text",
    "secret_name",
    "secrets_of",
]
