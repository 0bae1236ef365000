"""Connections that may be slow without keeping anybody waiting: waitress's channels, with deadlines.

waitress receives whole requests and sends whole responses in one loop, so that a slow client never holds a thread. What
it lacks is an end to its patience, which is here: for the head of a request, for its body, for a client that does not
read, and for a connection that nobody uses. Bodies above `LARGEST_KEPT` are not kept by the loop (that would fill the
temporary folder, which in a container is memory): the thread that asks for one reads it from the socket.
"""

from __future__ import annotations

import io
import select
import time
import weakref
from functools import partial
from typing import Any

from waitress.buffers import ReadOnlyFileBasedBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.utilities import RequestEntityTooLarge

LARGEST_KEPT = 16 * 1024 * 1024
"""Bytes of a body that are received before a thread is asked; as `LARGEST` of kit/largest_body."""
MOST_CONNECTIONS = 1_000
"""Of one process. One more, and the one that has kept us waiting longest goes."""
MOST_SPOOLED = 128 * 1024 * 1024
"""Bytes of unfinished requests and unread responses of one process; above, the largest goes."""
HIGH_WATER = 4 * 1024 * 1024
"""Bytes of a response that wait to be read, above which the thread that makes it waits."""

IDLE_SECONDS = 15.0
HEAD_SECONDS = 10.0
GRACE_SECONDS = 20.0
"""Bodies and responses may take so long at any rate; afterwards `SLOWEST` counts."""
SLOWEST = 1024
"""Bytes a second, on average since the beginning (bodies) or in every span of `GRACE_SECONDS` (responses)."""
PRESSED_SECONDS = 3.0
"""The grace of a client that holds a thread while requests wait for one."""


class Request(HTTPRequestParser):  # type: ignore[misc]
    """One request; ``streamed`` when its body is left in the socket."""

    streamed = False
    early = b""  # of a streamed body: what came together with the head

    def __init__(self, adj: Any, *, channel: weakref.ref[Connection]) -> None:
        super().__init__(adj)
        self.channel = channel

    def received(self, data: bytes) -> int:
        """The number of bytes that belong to this request."""
        if self.streamed:  # it waited for our "100 Continue"
            self.early += data
            self.completed = True
            return len(data)
        consumed: int = super().received(data)
        if self.completed:
            return consumed
        if self.chunked and self.body_bytes_received > LARGEST_KEPT:
            self.error = RequestEntityTooLarge(f"A body of unknown length may have {LARGEST_KEPT:,} bytes.")
            self.completed = True
        elif self.headers_finished and self.content_length > LARGEST_KEPT:
            self.streamed = self.completed = True
            self.headers["CONNECTION"] = "close"  # nobody may read it to its end
            self.early = data[consumed:]
            return len(data)
        return consumed

    def get_body_stream(self) -> Any:
        if self.streamed:
            channel = self.channel()
            assert channel is not None  # it is what serves this request
            return io.BufferedReader(StreamedBody(channel, self.early, self.content_length))
        return super().get_body_stream()


class StreamedBody(io.RawIOBase):
    """A large body, read from the socket by the thread that wants it. Raises OSError when it comes too slowly."""

    def __init__(self, channel: Connection, early: bytes, length: int) -> None:
        self._channel, self._early, self._left = channel, early[:length], length
        self._got, self._began = 0, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            return 0
        if self._early:
            piece, self._early = self._early[: len(buffer)], self._early[len(buffer) :]
            buffer[: len(piece)] = piece
            return self._taken(len(piece))
        with memoryview(buffer)[: self._left] as wanted:
            return self._taken(self._from_socket(wanted))

    def _from_socket(self, wanted: memoryview) -> int:
        channel = self._channel
        poll = select.poll()
        poll.register(channel.socket, select.POLLIN)
        while channel.connected:
            grace = PRESSED_SECONDS if channel.server.pressed() else GRACE_SECONDS
            if self._got < (time.monotonic() - self._began - grace) * SLOWEST:
                break
            if not poll.poll(500):
                continue
            try:
                count: int = channel.socket.recv_into(wanted)
            except BlockingIOError:
                continue
            if count:
                return count
            break
        raise OSError("The rest of the body did not come in time.")

    def _taken(self, count: int) -> int:
        self._left -= count
        self._got += count
        return count


class Connection(HTTPChannel):  # type: ignore[misc]
    """One client. ``phase`` is what it is at, ``since`` when that began (monotonic), as `Server.sweep` last saw it."""

    phase = ""
    sent = 0
    _parked = _writing = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Weak: what holds each other would wait for the garbage collector, with everything that was received.
        self.parser_class = partial(Request, channel=weakref.ref(self))
        self.since = time.monotonic()
        self._sent_before = 0
        self._served = False

    def send(self, data: bytes, do_close: bool = True) -> int:
        count: int = super().send(data, do_close=do_close)
        self.sent += count
        return count

    def service(self) -> None:
        """Answer the first request, in a thread. One that was sent behind another waits, without a thread, until the
        answer before it has been read."""
        with self.outbuf_lock:
            if self.total_outbufs_len:
                self._parked = True
                self.server.pull_trigger()
                return
        super().service()
        self._served = True

    def handle_write(self) -> None:
        super().handle_write()
        with self.outbuf_lock:
            if not self._parked or self.total_outbufs_len or not self.connected:
                return
            self._parked = False
        self.server.add_task(self)

    def write_soon(self, data: Any) -> int:
        self._writing = True
        try:
            count: int = super().write_soon(data)
        finally:
            self._writing = False
        return count

    def _flush_outbufs_below_high_watermark(self) -> None:
        """Wait for the client, where a response is being made; what was sent behind it is parked instead."""
        if self._writing:
            super()._flush_outbufs_below_high_watermark()

    def holds_a_thread(self) -> bool:
        """A thread waits for this client to read."""
        return self._writing and self.total_outbufs_len > HIGH_WATER

    def late(self, now: float, *, pressed: bool) -> bool:
        """Whether it has kept us waiting for too long. Called every half second or so."""
        phase, began = self._phase(), self.since
        if phase != self.phase:
            self.phase, self.since, self._sent_before = phase, now, self.sent
            # What came between two looks began after the first of them: nobody gains from that but the client.
            return False
        waited = now - began
        if phase == "idle":
            return waited > (IDLE_SECONDS if self._served else HEAD_SECONDS)
        if phase == "head":
            return waited > HEAD_SECONDS
        if phase == "body":
            return bool(self.request.body_bytes_received < (waited - GRACE_SECONDS) * SLOWEST)
        if phase == "sending":
            grace = PRESSED_SECONDS if pressed and self.holds_a_thread() else GRACE_SECONDS
            if waited > grace:
                slow = self.sent - self._sent_before < grace * SLOWEST
                self.since, self._sent_before = now, self.sent
                return slow
        return False

    def spooled(self) -> int:
        """Bytes that are kept for it: of its request, and of responses that are no files of ours."""
        kept = [
            len(outbuf) for outbuf in list(self.outbufs) if not isinstance(outbuf, ReadOnlyFileBasedBuffer)
        ]
        return sum(kept) + (self.request.body_bytes_received if self.request is not None else 0)

    def _phase(self) -> str:
        if self.total_outbufs_len:
            return "sending"
        if self.requests:
            return "running"
        request = self.request
        return "idle" if request is None else "body" if request.headers_finished else "head"


class Server(TcpWSGIServer):  # type: ignore[misc]
    """One listening socket and its connections."""

    channel_class = Connection

    def pressed(self) -> bool:
        """Whether requests wait for a thread."""
        return bool(self.task_dispatcher.queue)

    def maintenance(self, now: float) -> None:
        """Nothing: waitress's own asks for activity alone, of which a byte now and then is enough."""

    def handle_accept(self) -> None:
        if len(self.active_channels) >= MOST_CONNECTIONS:
            waiting = [channel for channel in self.active_channels.values() if not channel.requests]
            if waiting:
                min(waiting, key=lambda connection: connection.since).handle_close()
        super().handle_accept()

    def sweep(self, now: float) -> None:
        """Close what is late or too much. Between two rounds of the loop, never within one."""
        pressed, spooled = self.pressed(), 0
        for channel in list(self.active_channels.values()):
            if channel.late(now, pressed=pressed):
                channel.handle_close()
            else:
                spooled += channel.spooled()
        while spooled > MOST_SPOOLED and self.active_channels:
            largest = max(self.active_channels.values(), key=Connection.spooled)
            spooled -= max(largest.spooled(), 1)
            largest.handle_close()

    def finish(self) -> bool:
        """Close what is not being answered; whether everything is."""
        self.accepting = False
        for channel in list(self.active_channels.values()):
            if not channel.requests and not channel.total_outbufs_len:
                channel.handle_close()
        return not self.active_channels
