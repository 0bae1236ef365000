"""Health check of workers and beat in a container: ``python -m kvaudit.server.ops.alive [SECONDS]``.

They touch the file named by KVAUDIT_ALIVE_FILE every few seconds while they reach the broker; exit
code 0 when that was less than SECONDS (60) ago.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    """0 alive, 1 not; says why not."""
    path = os.environ.get("KVAUDIT_ALIVE_FILE", "")
    limit = float(argv[0]) if argv else 60.0
    try:
        age = time.time() - Path(path).stat().st_mtime if path else float("inf")
    except OSError:
        age = float("inf")
    if age > limit:
        print(f"no sign of life in {path or 'KVAUDIT_ALIVE_FILE, which is not set'} within {limit:.0f} s")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
