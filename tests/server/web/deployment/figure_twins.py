"""What is drawn against what the table says: reads the figure's JSON as the browser gets it, and the twin's rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from kvaudit.server.web.kit.figure import answer


def drawn(figure: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Traces and layout as JSON has them."""
    read = json.loads(answer(*figure).content)
    return read["data"], read["layout"]


def at(cell: object) -> int | None:
    """The instant of a cell in milliseconds, whole seconds; None for another cell."""
    found = re.search(r'datetime="([^"]+)"', str(cell))
    return round(datetime.fromisoformat(found[1]).timestamp()) * 1000 if found else None


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def whole(milliseconds: float) -> int:
    return int(milliseconds // 1000 * 1000)


def href(cell: object) -> str:
    found = re.search(r'href="([^"]+)"', str(cell))
    return found[1] if found else ""


def pieces(trace: dict[str, Any]) -> Iterator[list[tuple[Any, Any]]]:
    """The unbroken pieces of a line as points."""
    piece: list[tuple[Any, Any]] = []
    for x, y in zip([*trace["x"], None], [*trace["y"], None], strict=True):
        if x is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((x, y))


def by_name(data: Sequence[dict[str, Any]], mode: str = "") -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in data if not mode or trace.get("mode") == mode}


def marks(data: Sequence[dict[str, Any]], layout: dict[str, Any]) -> Counter[tuple[int, str, str]]:
    """(instant, lane, address) of every marker of a timeline."""
    lanes = dict(zip(layout["yaxis2"]["tickvals"], layout["yaxis2"]["ticktext"], strict=True))
    return Counter(
        (whole(x), lanes[y], address)
        for trace in data
        if trace["mode"] == "markers"
        for x, y, address in zip(trace["x"], trace["y"], trace["customdata"], strict=True)
    )


def bars(data: Sequence[dict[str, Any]], layout: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """(lane, kind, begin, end) of every bar of a timeline."""
    lanes = dict(zip(layout["yaxis2"]["tickvals"], layout["yaxis2"]["ticktext"], strict=True))
    for trace in data:
        if trace["mode"] == "lines":
            for piece in pieces(trace):
                yield lanes[piece[0][1]], trace["name"], whole(piece[0][0]), whole(piece[-1][0])
