"""``kvaudit ledger ...``: finds this machine's database first, when none is named."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.server.ledger import chain_check
from kvaudit.server.ops.state import adopt_local_environment


def main(argv: Sequence[str]) -> int:
    """Exit code of `kvaudit.server.ledger.chain_check`."""
    adopt_local_environment()
    return chain_check.main(argv)
