"""Django's database sessions, kept under a keyed hash of the cookie: whoever reads the table, or a dump of it, can log
in as nobody. (docs/decisions/0015-slow-clients-and-logins.md)"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.base import CreateError, UpdateError
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Least
from django.utils.crypto import salted_hmac

from kvaudit.server import clock
from kvaudit.server.accounts.models import Session


def hashes_of(key: str) -> list[str]:
    """What the cookie's value is stored as, under the secret key of now and those of before."""
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return [
        salted_hmac("kvaudit.accounts.session", key, secret=secret, algorithm="sha256").hexdigest()
        for secret in secrets
    ]


class SessionStore(DatabaseStore):
    """The engine that settings name. It has no asynchronous half, which would go around the hash."""

    @classmethod
    def get_model_class(cls) -> type[Session]:  # type: ignore[override]
        return Session

    row_of_load: Session | None = None
    """What was stored when the session was read."""

    def load(self) -> dict[str, Any]:
        row = self.row_of_load = self.row()
        if row is None:
            self._session_key = None
            return {}
        return dict(self.decode(row.data))

    def row(self) -> Session | None:
        """What is stored of it; None when it has ended."""
        if self.session_key is None:
            return None
        found = Session.objects.filter(key_hash__in=hashes_of(self.session_key))
        return found.lasting(clock.now()).first()

    def exists(self, session_key: str) -> bool:
        return Session.objects.filter(key_hash__in=hashes_of(session_key)).exists()

    def save(self, must_create: bool = False) -> None:
        """Raises CreateError and UpdateError as the base class does."""
        if self.session_key is None:
            self.create()
            return
        said = self._get_session(no_load=must_create)  # type: ignore[attr-defined]
        fields = {"data": self.encode(said), "user_id": said.get(SESSION_KEY)}
        hashes = hashes_of(self.session_key)
        if must_create:
            now = clock.now()
            try:
                with transaction.atomic():
                    Session.objects.create(
                        key_hash=hashes[0],
                        created_at=now,
                        last_used_at=now,
                        expires_at=now + min(settings.SESSION_IDLE, settings.SESSION_LONGEST),
                        **fields,
                    )
            except IntegrityError:
                raise CreateError from None
        elif not Session.objects.filter(key_hash__in=hashes).update(**fields):
            raise UpdateError

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            Session.objects.filter(key_hash__in=hashes_of(key)).delete()

    def used(self, *, browser: str, address: str) -> None:
        """Note the use and let it last on, up to the longest that any session lasts."""
        if self.session_key is None:
            return
        now = clock.now()
        Session.objects.filter(key_hash__in=hashes_of(self.session_key)).update(
            last_used_at=now,
            expires_at=Least(now + settings.SESSION_IDLE, F("created_at") + settings.SESSION_LONGEST),
            browser=browser,
            address=address,
        )

    @classmethod
    def clear_expired(cls) -> None:
        Session.objects.filter(expires_at__lte=clock.now()).delete()

    async def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("Sessions of kvaudit are used by synchronous code.")

    aload = aexists = asave = adelete = acreate = _aget_session_from_db = _refuse
