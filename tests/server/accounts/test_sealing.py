"""A sealed text opens in its own place alone, under any of the keys, and is for the origins it was given for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet

from kvaudit.server.accounts.sealing import (
    Place,
    SealBroken,
    SealedForElsewhere,
    opening_key,
    reseal,
    seal,
    unseal,
)

HERE = Place("fleet_tenant", "credential_sealed", (7, "a"))
ORIGIN = "http://10.0.0.1:8000"


def test_what_is_sealed_can_be_opened_and_not_read() -> None:
    sealed = seal("tenant-key-ä", HERE, {ORIGIN})
    assert "tenant" not in sealed
    assert "10.0.0.1" not in sealed
    assert unseal(sealed, HERE, sent_to={ORIGIN}) == "tenant-key-ä"
    assert seal("tenant-key-ä", HERE, {ORIGIN}) != sealed
    assert seal("", HERE) == unseal("", HERE, sent_to={ORIGIN}) == reseal("", HERE) == ""


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(HERE, table="fleet_node"),
        replace(HERE, column="salt_sealed"),
        replace(HERE, row=(8, "a")),
        replace(HERE, row=(7, "b")),
        replace(HERE, row=("7", "a")),
        replace(HERE, row=(7, "a", "")),
    ],
)
def test_it_opens_in_no_other_place(elsewhere: Place) -> None:
    sealed = seal("secret", HERE, {ORIGIN})
    with pytest.raises(SealBroken, match="another row"):
        unseal(sealed, elsewhere, sent_to=())
    with pytest.raises(SealBroken):
        reseal(sealed, elsewhere)


@pytest.mark.parametrize("asked", [{"http://10.0.0.2:8000"}, {ORIGIN, "https://10.0.0.1:8000"}, {""}])
def test_it_is_sent_to_no_other_origin(asked: set[str]) -> None:
    with pytest.raises(SealedForElsewhere, match="enter it again") as refused:
        unseal(seal("secret", HERE, {ORIGIN}), HERE, sent_to=asked)
    assert "secret is" not in str(refused.value).replace("stored secret", "")
    with pytest.raises(SealedForElsewhere, match="no address"):
        unseal(seal("secret", HERE), HERE, sent_to=asked)


def test_keys_can_be_changed_without_losing_what_is_stored(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [old]
    sealed = seal("secret", HERE, {ORIGIN})
    settings.ENCRYPTION_KEYS = [new, old]
    assert unseal(sealed, HERE, sent_to={ORIGIN}) == "secret"
    moved = reseal(sealed, HERE)
    settings.ENCRYPTION_KEYS = [new]
    assert unseal(moved, HERE, sent_to={ORIGIN}) == "secret"
    with pytest.raises(SealedForElsewhere):
        unseal(moved, HERE, sent_to={"http://elsewhere:80"})
    for broken in (sealed, moved[:-4], moved[:10], "kv2.", "kv2.\u00e4", "nonsense", "\x00"):
        with pytest.raises(SealBroken, match="ENCRYPTION_KEYS"):
            unseal(broken, HERE, sent_to=())
    with pytest.raises(SealBroken):
        reseal(sealed, HERE)


def test_what_the_first_release_sealed_is_refused_although_the_key_is_there(settings: Any) -> None:
    """Whoever can write the database would else put an old text back, to have it sent where he likes."""
    unbound = Fernet(settings.ENCRYPTION_KEYS[0]).encrypt(b"secret").decode()
    with pytest.raises(SealBroken, match="Enter it again"):
        unseal(unbound, HERE, sent_to=())
    with pytest.raises(SealBroken):
        reseal(unbound, HERE)


def test_the_key_that_opens_a_text_is_found(settings: Any) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    settings.ENCRYPTION_KEYS = [old]
    sealed = seal("secret", HERE, {ORIGIN})
    settings.ENCRYPTION_KEYS = [new, old]
    assert opening_key(sealed, HERE) == old
    assert opening_key(reseal(sealed, HERE), HERE) == new
    settings.ENCRYPTION_KEYS = [new]
    for text in (sealed, "", "gAAAA-of-the-first-release", "kv2.", "kv2.AAAA", "kv2.not base64"):
        assert opening_key(text, HERE) is None
    settings.ENCRYPTION_KEYS = [old]
    assert opening_key(sealed, replace(HERE, row=(8, "a"))) is None
