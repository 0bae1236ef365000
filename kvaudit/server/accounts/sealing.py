"""Seals secrets at rest: encrypted with the first of ``settings.ENCRYPTION_KEYS``, readable with any, and
bound.

A sealed text opens only in the table, column and row it was sealed for, and says to which origins it
may be sent: both are authenticated, so that whoever can write the database, but has no key, can
neither move a secret to another row nor have it sent elsewhere by changing an address. The keys come
from the environment and are never stored. Decision 0011 has the reasons.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_VERSION = "kv2."
_UNBOUND = "gAAAA"  # how every text begins that the first release sealed (Fernet, version 0x80)
_NONCE = 12  # bytes, drawn for each text: with 2^32 texts under one key a repetition is still unlikely


class SealBroken(Exception):
    """A sealed text that cannot be opened, or not be sent there. The message is a sentence."""


class SealedForElsewhere(SealBroken):
    """The text opens, but may not be sent to the origin that would be asked now."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sealed text lives. ``row`` is what identifies the row for as long as the secret is kept."""

    table: str
    column: str
    row: tuple[int | str, ...]

    @property
    def associated(self) -> bytes:
        return json.dumps([_VERSION, self.table, self.column, *self.row]).encode()


@dataclass(frozen=True, slots=True)
class Opened:
    """What was sealed, and the origins it may be sent to."""

    text: str
    origins: frozenset[str]


def seal(text: str, place: Place, origins: Collection[str] = ()) -> str:
    """Encrypt for one place; the empty text stays empty ("nothing stored"). ``origins`` are those that
    whoever gave the secret named (`kvaudit.auditor.transport.origin_of`): it is sent to no other."""
    if not text:
        return ""
    header = json.dumps(sorted(origins)).encode()
    plain = len(header).to_bytes(4, "big") + header + text.encode()
    nonce = os.urandom(_NONCE)
    encrypted = _ciphers()[0].encrypt(nonce, plain, place.associated)
    return _VERSION + base64.urlsafe_b64encode(nonce + encrypted).decode()


def unseal(sealed: str, place: Place, *, sent_to: Collection[str]) -> str:
    """Decrypt. ``sent_to`` are the origins that it is about to be sent to, none where it is only looked
    at. Raises `SealBroken`, and `SealedForElsewhere` for an origin that it was not given for."""
    if not sealed:
        return ""
    opened = open_sealed(sealed, place)
    if strange := sorted(set(sent_to) - opened.origins):
        raise SealedForElsewhere(
            f"The stored secret was given for {' and '.join(sorted(opened.origins)) or 'no address'}, not for "
            f"{' and '.join(origin or 'an address that cannot be used' for origin in strange)}, so it is not sent "
            "there: enter it again if it belongs to the new address."
        )
    return opened.text


def open_sealed(sealed: str, place: Place) -> Opened:
    """The text and its origins. Raises `SealBroken` when the keys, or the place, do not fit."""
    if sealed.startswith(_UNBOUND):
        raise SealBroken(
            "A stored secret is not bound to an address: an earlier release sealed it, and no key in "
            "ENCRYPTION_KEYS opened it at the upgrade. Enter it again."
        )
    try:
        if not sealed.startswith(_VERSION):
            raise ValueError
        raw = base64.b64decode(sealed.removeprefix(_VERSION), altchars=b"-_", validate=True)
        plain = _decrypted(raw, place)
        length = int.from_bytes(plain[:4], "big")
        origins = json.loads(plain[4 : 4 + length])
        return Opened(plain[4 + length :].decode(), frozenset(origins))
    except (InvalidTag, ValueError, binascii.Error):
        raise SealBroken(
            "A stored secret cannot be opened: it was sealed with a key that is not in ENCRYPTION_KEYS, or "
            "for another row than the one it stands in. Add that key, or enter the secret again."
        ) from None


def opening_key(sealed: str, place: Place) -> str | None:
    """The one of ENCRYPTION_KEYS that opens it; None when none does."""
    if not sealed.startswith(_VERSION):
        return None
    try:
        raw = base64.b64decode(sealed.removeprefix(_VERSION), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return None
    for key in settings.ENCRYPTION_KEYS:
        with suppress(InvalidTag, ValueError):
            _cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], place.associated)
            return str(key)
    return None


def reseal(sealed: str, place: Place) -> str:
    """The same secret under the newest key, for key rotation."""
    if not sealed:
        return ""
    opened = open_sealed(sealed, place)
    return seal(opened.text, place, opened.origins)


def open_unbound(sealed: str) -> str | None:
    """What the first release sealed, None when no key opens it. For the migrations that bind it, which
    run once: accepted later, an old text put back by SQL would be bound to whatever address stands there."""
    try:
        return (
            MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS]).decrypt(sealed.encode()).decode()
        )
    except (InvalidToken, ValueError):
        return None


def _decrypted(raw: bytes, place: Place) -> bytes:
    nonce, encrypted = raw[:_NONCE], raw[_NONCE:]
    if len(nonce) < _NONCE:
        raise InvalidTag
    for cipher in _ciphers():
        try:
            return cipher.decrypt(nonce, encrypted, place.associated)
        except InvalidTag:
            continue
    raise InvalidTag


def _ciphers() -> list[ChaCha20Poly1305]:
    return [_cipher(key) for key in settings.ENCRYPTION_KEYS]


@lru_cache(maxsize=16)
def _cipher(key: str) -> ChaCha20Poly1305:
    """A key of its own for this purpose: the one in the environment also opened the first release's texts."""
    derived = HKDF(SHA256(), 32, None, b"kvaudit.accounts.sealing/2").derive(base64.urlsafe_b64decode(key))
    return ChaCha20Poly1305(derived)
