"""Token ids of a text, from whoever of the target offers a tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from kvaudit.auditor.engines.completion import Call, Dialect
from kvaudit.auditor.prober.hearing import json_or_none
from kvaudit.auditor.prober.silence import until_stopped
from kvaudit.auditor.prober.wire import Wire
from kvaudit.auditor.transport import Limits, TransportError

TOKENIZER_SECONDS = 20.0
ATTEMPTS = 3
"""Of a short request or a tokenizer call that failed for a reason that may pass."""

RETRY_PAUSE = 1.0


class NoTokenizer(ValueError):
    """No tokenizer endpoint answered."""


async def token_ids(
    call: Call,
    dialect: Dialect,
    wires: Iterable[Wire],
    *,
    stopped: Callable[[], str],
    sleep: Callable[[float], Awaitable[None]],
) -> Sequence[int]:
    """What the first of ``wires`` answers to this call of a tokenizer; a router may have none where its nodes do.
    Raises `NoTokenizer`, and `Stop` when the run has to stop."""
    asked = tuple(wires)
    last = ""
    for attempt in range(ATTEMPTS):
        may_pass = False
        for wire in asked:
            try:
                asking = wire.request(
                    "POST", call.path, content=call.body, limits=Limits(total=TOKENIZER_SECONDS)
                )
                answer = await until_stopped(asking, stopped)
            except TransportError as problem:
                last, may_pass = str(problem), True
                continue
            found = dialect.token_ids(json_or_none(answer.body)) if answer.status == 200 else None
            if found is not None:
                return found
            last = f"the tokenizer endpoint answered {answer.status}"
            may_pass |= answer.status in (200, 429) or answer.status >= 500
        if not may_pass or attempt == ATTEMPTS - 1:
            break
        await sleep(RETRY_PAUSE)
    raise NoTokenizer(f"no tokenizer: {last}")
