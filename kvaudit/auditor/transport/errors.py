"""Defines why no answer came: one exception per cause, with a sentence for the person who can fix it."""

from __future__ import annotations

from typing import ClassVar


class TransportError(Exception):
    """No usable answer. ``str(error)`` is a whole sentence: what, where, what to do.

    ``transient`` says that waiting may help (a server that is still starting); ``fatal`` that no
    other path of the same node can fare better, so the remaining reads are not worth a try.
    """

    transient: ClassVar[bool] = False
    fatal: ClassVar[bool] = False


class BadURL(TransportError):
    """The base URL cannot be used; nothing was sent."""

    fatal = True


class BadHeader(TransportError):
    """A header name or value cannot be sent as it is; nothing was sent."""

    fatal = True


class KeyForElsewhere(TransportError):
    """The key was given for another origin than the one that would be asked; nothing was sent."""

    fatal = True


class PathNotAllowed(TransportError):
    """The path is not on the engine's allow-list; nothing was sent."""


class AddressDenied(TransportError):
    """The name or address leads to link-local, metadata or multicast addresses; nothing was sent."""

    fatal = True


class NameNotFound(TransportError):
    """The host name does not resolve."""

    transient = True
    fatal = True


class ConnectionRefused(TransportError):
    """Nothing listens on that port."""

    transient = True
    fatal = True


class Unreachable(TransportError):
    """The network has no way to that address."""

    transient = True
    fatal = True


class ConnectTimedOut(TransportError):
    """No connection within the limit: a firewall that drops, or a machine that is down."""

    transient = True
    fatal = True


class TLSFailed(TransportError):
    """The TLS handshake failed: wrong CA, wrong name, expired, or no TLS there at all."""

    fatal = True


class SilentServer(TransportError):
    """The server sent nothing for the read limit."""

    transient = True


class DeadlineExceeded(TransportError):
    """The whole answer did not arrive within the total deadline (a dripping server)."""


class ConnectionDropped(TransportError):
    """The server closed the connection before its answer was complete."""

    transient = True


class NotHTTP(TransportError):
    """What came back is not HTTP."""


class Redirected(TransportError):
    """The server answered with a redirect, which is never followed."""


class BodyTooLarge(TransportError):
    """The body, after decompression, exceeds the cap."""


class BadEncoding(TransportError):
    """The body's compression is broken or was never offered."""


class TooManySecrets(TransportError):
    """The answer was made to cost time: it holds more that looks like a secret than any engine's does."""


class TooManyFrames(TransportError):
    """The stream was made to cost time: it is cut into more lines than its length allows for."""
