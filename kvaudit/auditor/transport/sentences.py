"""Turns what httpcore, ssl and h11 raise into one `TransportError` with a sentence."""

from __future__ import annotations

import ssl
from typing import Any

import httpcore

from kvaudit.auditor.transport.errors import (
    ConnectionDropped,
    ConnectTimedOut,
    DeadlineExceeded,
    NotHTTP,
    SilentServer,
    TLSFailed,
    TooManyFrames,
    TooManySecrets,
    TransportError,
    Unreachable,
)
from kvaudit.auditor.transport.limits import Limits
from kvaudit.auditor.transport.redaction import Redactor

WANTS_CERTIFICATE = (
    "a server that wants a client certificate may end it so: if it does, give --client-cert and --client-key"
)
_WIRE_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError)


class sentences:
    """Turns what httpcore, ssl and h11 raise into one `TransportError` with a sentence."""

    def __init__(self, where: str, limits: Limits, redactor: Redactor, *, certified: bool = True) -> None:
        """``certified``: a client certificate is sent, or the caller cannot give one."""
        self._where, self._limits, self._redactor = where, limits, redactor
        bare = not certified and where.partition(" ")[2].startswith("https")
        self._perhaps = f"; {WANTS_CERTIFICATE}" if bare else ""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (TooManyFrames, TooManySecrets)):
            raise type(error)(f"{self._where}: {str(error)[0].lower()}{str(error)[1:]}") from None
        if isinstance(error, TransportError) or error is None:
            return
        translated = self._translate(error)
        if translated is not None:
            raise translated from None

    def _translate(self, error: BaseException) -> TransportError | None:
        where, limits = self._where, self._limits
        if not isinstance(error, _WIRE_ERRORS):
            return None
        security = _find(error, ssl.SSLError)
        if security is not None:
            return TLSFailed(_tls_sentence(where, security))
        match error:
            case httpcore.ConnectTimeout():
                return ConnectTimedOut(
                    f"{where}: the TLS handshake did not finish within {limits.connect:g} s."
                )
            case httpcore.ReadTimeout() | httpcore.WriteTimeout():
                return SilentServer(
                    f"{where} sent nothing for {limits.read:g} s: the server hangs, "
                    "or something in between drops packets."
                )
            case httpcore.PoolTimeout():
                return DeadlineExceeded(f"{where} waited {limits.total:g} s for a free connection.")
            case httpcore.RemoteProtocolError():
                text = self._redactor.text(str(error))[:160]
                if "disconnected" in text or "incomplete" in text or "closed connection" in text:
                    return ConnectionDropped(
                        f"{where}: the server closed the connection before its answer was complete{self._perhaps}."
                    )
                return NotHTTP(
                    f"{where} did not answer in HTTP ({text}): another service listens on that port, "
                    "or it expects https."
                )
            case httpcore.LocalProtocolError():
                return NotHTTP(f"{where} could not be sent ({self._redactor.text(str(error))[:160]}).")
            case httpcore.ConnectError():
                if self._where.partition(" ")[2].startswith("https"):
                    return TLSFailed(
                        f"{where}: the server closed the connection during the TLS handshake; "
                        "it may want a client certificate, or speak plain http."
                    )
                return Unreachable(f"{where} cannot be reached.")
            case httpcore.NetworkError():
                return ConnectionDropped(
                    f"{where}: the connection was reset before the answer was complete{self._perhaps}."
                )
        return None


def _find(error: BaseException | None, kind: type[ssl.SSLError]) -> ssl.SSLError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _tls_sentence(where: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{where}: the certificate is not trusted ({error.verify_message}); give the CA with --ca-file, "
            "or the name that stands in the certificate."
        )
    reason = (error.reason or str(error) or "no details").upper().replace(" ", "_")
    if any(sign in reason for sign in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")):
        return f"{where}: no TLS on that port ({reason}); the URL probably begins with http://."
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason or "BAD_CERTIFICATE" in reason:
        return (
            f"{where}: the server wants a client certificate ({reason}); give --client-cert and --client-key."
        )
    return f"{where}: TLS failed ({reason})."
