"""``kvaudit backup FILE`` and ``kvaudit restore FILE``: thin doors with a sentence for everything that goes wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from kvaudit.server.disk import NO_ROOM
from kvaudit.server.ops.backup import archive
from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.backup.reached import Reached, aim_at, beside, reached, set_keys
from kvaudit.server.ops.embedded import EmbeddedFault
from kvaudit.server.ops.environment import EnvironmentFault
from kvaudit.server.ops.state import StateFault

EXIT_DONE, EXIT_NOT_DONE = 0, 3


def backup(argv: Sequence[str]) -> int:
    """0 when the backup is there and whole, else 3."""
    parser = argparse.ArgumentParser(
        prog="kvaudit backup", description="Write the whole database to one file."
    )
    parser.add_argument("file", type=Path, help="a new file; it appears when it is whole")
    parser.add_argument(
        "--keys-to",
        type=Path,
        metavar="KEYFILE",
        help="also write the keys, in clear, to a new file of their own",
    )
    options = parser.parse_args(list(argv))
    return _said("kvaudit backup", lambda: _back_up(options.file.absolute(), options.keys_to))


def restore(argv: Sequence[str]) -> int:
    """0 when the database is the backup's, else 3 and it is as before."""
    parser = argparse.ArgumentParser(
        prog="kvaudit restore", description="Make the database what a backup holds."
    )
    parser.add_argument("file", type=Path, help="made by kvaudit backup")
    parser.add_argument(
        "--keys", type=Path, metavar="KEYFILE", help="the keys that kvaudit backup --keys-to wrote"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="take the place of a database that is not empty; it is kept beside",
    )
    parser.add_argument(
        "--without-keys",
        action="store_true",
        help="restore although credentials will not open with the keys at hand",
    )
    options = parser.parse_args(list(argv))
    return _said("kvaudit restore", lambda: _restore(options))


def _back_up(path: Path, keys_to: Path | None) -> None:
    for each in filter(None, (path, keys_to)):
        if each.exists():
            raise BackupFault(f"{each} is there already: give another name, nothing is ever written over.")
        if not each.absolute().parent.is_dir():
            raise BackupFault(f"There is no folder {each.absolute().parent}.")
    with reached(alone=False) as database:
        _set_up()
        from kvaudit.server.ops.backup import inventory, keys, making

        made = making.make(database, path, _say)
        if keys_to:
            keys.write(keys_to, keys.held())
    closed = inventory.closed({column: dict(opened) for column, opened in (made.sealed or {}).items()})
    _say(
        f"{path}: {made.dump_bytes / 2**20:.1f} MB, ledger up to entry {made.head_sequence}, "
        f"hash {made.head_hash or '-'}"
    )
    if any(closed):
        _say(f"the credentials of {closed[0]} tenants and {closed[1]} other secrets open with no key at hand")
    named = ", ".join(made.keys["ENCRYPTION_KEYS"])
    if keys_to:
        _say(f"{keys_to}: the keys in clear; keep it apart from the backup")
    else:
        _say(f"the keys are not in it: without key {named} (ENCRYPTION_KEYS) its credentials stay closed")


def _restore(options: argparse.Namespace) -> None:
    found = archive.opened(options.file)
    with reached(alone=True, make=True) as database:
        if options.keys:
            _use_keys(options.keys)
        head_file = os.environ.pop("LEDGER_HEAD_FILE", "")
        aim_at(beside(database.name))
        _set_up()
        from kvaudit.server.ops.backup import keys, restoring

        done = restoring.restore(
            database,
            found,
            replace=options.replace,
            without_keys=options.without_keys,
            head_file=head_file,
            say=_say,
        )
        if options.keys:
            _install_keys(database, keys.held())
    _say(f"restored: the backup of {found.manifest.made_at}, ledger up to {done.head.in_words()}")
    if lost := done.lost:
        after = (
            f", {lost.sequence - done.head.sequence} entries" if lost.sequence > done.head.sequence else ""
        )
        _say(
            f"lost{after}: {lost.in_words()} was the last that was known, and is not in the backup; it is recorded"
        )
    if not head_file:
        _say(
            "whether anything was lost since is not known: LEDGER_HEAD_FILE names no head outside the database"
        )
    _say(f"credentials of {done.opened} tenants open" + (f", of {done.closed} do not" if done.closed else ""))
    if done.others_closed:
        _say(f"{done.others_closed} other secrets do not open: enter them again")
    if done.kept:
        _say(f"the former database is {done.kept} on the same server: drop it when you need it no more")


def _use_keys(path: Path) -> None:
    from kvaudit.server.ops.backup import keys

    set_keys(keys.read(path))


def _install_keys(database: Reached, values: dict[str, str]) -> None:
    """Into the state folder, where `kvaudit up` finds them; what lay there is put aside, never lost."""
    if database.state is None:
        _say("set the variables of the key file wherever web, workers and initialise run, before they start")
        return
    files = {
        "encryption_key": "ENCRYPTION_KEYS",
        "secret_key": "SECRET_KEY",
        "seal_private_key": "SEAL_PRIVATE_KEY",
    }
    for name, variable in files.items():
        if not (value := values.get(variable)):
            continue
        try:
            aside = database.state.replace_secret(name, value)
        except OSError as error:
            raise BackupFault(
                f"The database is restored, but its key could not be written to {database.state.secrets / name} "
                f"({error.strerror}): put the value of {variable} there, before anything starts."
            ) from None
        if aside:
            _say(f"the key that lay in {name} is now in {aside}")


def _set_up() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")
    import django

    django.setup()


def _said(program: str, work: Callable[[], None]) -> int:
    try:
        work()
    except (BackupFault, StateFault, EmbeddedFault, EnvironmentFault) as fault:
        return _refused(program, str(fault))
    except OSError as error:
        if error.errno in NO_ROOM:
            return _refused(program, "The disk is full, so it was not done: make room, then try again.")
        return _refused(program, f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.")
    except psycopg.Error as error:
        return _refused(program, f"PostgreSQL refused: {str(error).strip()}")
    except SystemExit as stopped:  # Django's settings leave with a sentence
        return _refused(program, str(stopped.code).removeprefix("kvaudit: "))
    except Exception as error:
        from django.core.management import CommandError
        from django.db import Error

        from kvaudit.server.ops.initialise import InitialiseFault

        if isinstance(error, InitialiseFault | CommandError | Error):
            return _refused(program, str(error).strip())
        raise
    return EXIT_DONE


def _refused(program: str, text: str) -> int:
    for sentence in text.splitlines():
        print(f"{program}: {sentence}", file=sys.stderr)
    return EXIT_NOT_DONE


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit({"backup": backup, "restore": restore}[sys.argv[1]](sys.argv[2:]))
