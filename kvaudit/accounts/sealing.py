"""Secrets at rest: encrypted with the first of ``settings.ENCRYPTION_KEYS``, readable with any.

A sealed text is worthless without the keys, which come from the environment and are never stored.
Only what talks to an engine or a receiver opens one.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class SealBroken(Exception):
    """A sealed text that no configured key opens. The message is a sentence."""


def seal(text: str) -> str:
    """Encrypt; the empty text stays empty ("nothing stored")."""
    return _keys().encrypt(text.encode()).decode() if text else ""


def unseal(sealed: str) -> str:
    """Decrypt. Raises `SealBroken` when the keys do not fit."""
    if not sealed:
        return ""
    try:
        return _keys().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SealBroken(
            "A stored secret cannot be opened with the keys in ENCRYPTION_KEYS: "
            "add the key it was sealed with, or enter the secret again."
        ) from None


def reseal(sealed: str) -> str:
    """The same secret under the newest key, for key rotation."""
    if not sealed:
        return ""
    try:
        return _keys().rotate(sealed.encode()).decode()
    except InvalidToken:
        raise SealBroken("A stored secret cannot be opened with the keys in ENCRYPTION_KEYS.") from None


def _keys() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
