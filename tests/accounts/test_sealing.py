from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet

from kvaudit.accounts.sealing import SealBroken, reseal, seal, unseal


def test_what_is_sealed_can_be_opened_and_not_read() -> None:
    sealed = seal("tenant-key-ä")
    assert "tenant" not in sealed
    assert unseal(sealed) == "tenant-key-ä"
    assert seal("tenant-key-ä") != sealed
    assert seal("") == unseal("") == reseal("") == ""


def test_keys_can_be_changed_without_losing_what_is_stored(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [old]
    sealed = seal("secret")
    settings.ENCRYPTION_KEYS = [new, old]
    assert unseal(sealed) == "secret"
    moved = reseal(sealed)
    settings.ENCRYPTION_KEYS = [new]
    assert unseal(moved) == "secret"
    for broken in (sealed, moved[:-4], "nonsense"):
        with pytest.raises(SealBroken, match="ENCRYPTION_KEYS"):
            unseal(broken)
    with pytest.raises(SealBroken):
        reseal(sealed)
