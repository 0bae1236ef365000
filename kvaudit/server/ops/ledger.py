"""``kvaudit ledger verify``: is the chain intact, and is the record what was chained?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from kvaudit.server.ops.state import adopt_local_environment

EXIT_INTACT, EXIT_BROKEN, EXIT_ERROR = 0, 1, 3


def main(argv: Sequence[str]) -> int:
    """Finds this machine's database, when none is named; exit code of `verify`."""
    adopt_local_environment()
    return verify(argv)


def verify(argv: Sequence[str]) -> int:
    """``kvaudit ledger verify [--last-hash HASH]``: 0 intact, 1 broken, 3 not verifiable."""
    parser = _Parser(prog="kvaudit ledger")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "verify", help="check every entry's hash, its link to the one before, and the rows that it recorded"
    )
    command.add_argument("--last-hash", default="", help="a hash noted earlier that must still be there")
    arguments = parser.parse_args(list(argv))

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")
    import django
    from django.db import Error

    try:
        django.setup()
    except SystemExit as stopped:  # settings leave with a sentence and 1, which here would read as broken
        sys.stderr.write(f"{stopped.code}\n")
        return EXIT_ERROR
    from kvaudit.server.ledger import noted_head, record_check, verify_job
    from kvaudit.server.ledger.chain_check import verify_chain, verify_record
    from kvaudit.server.ledger.models import Entry

    try:
        entries = Entry.objects.order_by("sequence").iterator(chunk_size=5000)
        noted = verify_job.noted_before()
        found = verify_record(lambda walked: verify_chain(walked, noted), entries)
        noted_is_there = not arguments.last_hash or Entry.objects.filter(hash=arguments.last_hash).exists()
    except noted_head.HeadUnreadable as fault:
        return _say(str(fault), EXIT_ERROR)
    except Error as error:
        return _say(f"The ledger could not be read: {str(error).strip()}", EXIT_ERROR)
    if found.problem or noted_is_there:  # a hash that somebody mistyped says nothing of the ledger
        with suppress(Error):  # a role that may only read verifies all the same
            verify_job.keep(found, asked_by="command:ledger-verify")
    if found.problem:
        return _say(f"Ledger broken. {found.problem} {found.intact}", EXIT_BROKEN)
    if not noted_is_there:
        return _say(
            f"Ledger broken. No entry has the hash {arguments.last_hash}: the end was cut off or rewritten.",
            EXIT_BROKEN,
        )
    return _say(
        f"Ledger intact: {found.entries} entries, last hash {found.last_hash or '-'}.{record_check.what_to_say()}",
        EXIT_INTACT,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Usage errors are 3: argparse's own 2 would read as inconclusive."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_ERROR, f"{self.prog}: {message}\n")


def _say(sentence: str, code: int) -> int:
    sys.stdout.write(sentence + "\n")
    return code
