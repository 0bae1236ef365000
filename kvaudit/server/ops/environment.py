"""Reads the environment variables that configure kvaudit, the same for one machine and for many.

Every variable has a ``NAME_FILE`` twin that names a file holding the value (container secrets).
Faults are collected, so that one start tells everything that has to be put right; no fault ever
repeats a secret's value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kvaudit.auditor.transport.rules import BadRule, Rule, parse_rule

MIN_SECRET_KEY_CHARACTERS = 50
MIN_SECRET_KEY_DISTINCT = 8
# Values met in tutorials, examples and copied compose files: everyone knows them.
KNOWN_SECRETS = (
    "django-insecure",
    "changeme",
    "change-me",
    "secret-key",
    "your-secret",
    "insecure",
    "example",
)

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


class EnvironmentFault(ValueError):
    """A variable is missing or unsafe; the text is one sentence per variable for whoever starts kvaudit."""


class Environment:
    """A view of the variables; faults gather in ``faults`` until `finish` raises them together."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.faults: list[str] = []

    def fault(self, sentence: str) -> None:
        """Note what has to be put right; told once even when a variable is read twice."""
        if sentence not in self.faults:
            self.faults.append(sentence)

    def finish(self) -> None:
        """Raise `EnvironmentFault` when anything was missing or unsafe."""
        if self.faults:
            raise EnvironmentFault("\n".join(self.faults))

    def text(self, name: str, default: str = "") -> str:
        """The value of ``name``, or of the file that ``NAME_FILE`` names, without surrounding space."""
        direct = self._variables.get(name, "").strip()
        path = self._variables.get(f"{name}_FILE", "").strip()
        if direct and path:
            self.fault(f"{name} and {name}_FILE are both set: keep one of them.")
        if direct or not path:
            return direct or default
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            self.fault(f"{name}_FILE names {path}, which cannot be read ({error.strerror}).")
            return default
        except UnicodeDecodeError:
            self.fault(f"{name}_FILE names {path}, which is not text.")
            return default
        if not value:
            self.fault(f"{name}_FILE names {path}, which is empty.")
        return value or default

    def required(self, name: str, what: str) -> str:
        """The value of ``name``; missing is a fault that says ``what`` the variable is."""
        before = len(self.faults)
        value = self.text(name)
        if not value and len(self.faults) == before:
            self.fault(f"{name} is not set: give {what} in {name} or in the file that {name}_FILE names.")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A yes or no."""
        value = self.text(name).lower()
        if not value:
            return default
        if value not in _TRUE | _FALSE:
            self.fault(f"{name} must be 1 or 0, not {value!r}.")
        return value in _TRUE

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number between ``low`` and ``high``."""
        value = self.text(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            self.fault(f"{name} must be a number from {low:g} to {high:g}, not {value!r}.")
            return default
        return number

    def names(self, name: str, default: str = "") -> list[str]:
        """A list separated by commas; commas alone are a fault."""
        text = self.text(name, default)
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if text and not parts:
            self.fault(f"{name} holds commas only: give the values between them.")
        return parts

    def egress_rules(self, name: str) -> tuple[Rule, ...]:
        """Rules of the egress list, separated by commas."""
        rules: list[Rule] = []
        for text in self.names(name):
            try:
                rules.append(parse_rule(text))
            except BadRule as problem:
                self.fault(f"{name}: {problem}")
        return tuple(rules)

    def folder(self, name: str) -> str:
        """An absolute path, of a folder or of nothing yet; "" where none is given."""
        value = self.text(name)
        if value and (not Path(value).is_absolute() or Path(value).is_file()):
            self.fault(f"{name} must be the absolute path of a folder, and {value!r} is none.")
        return value

    def secret_key(self) -> str:
        """Django's signing key: long, varied and not one that everybody knows."""
        value = self.required(
            "SECRET_KEY", f"a random text of at least {MIN_SECRET_KEY_CHARACTERS} characters"
        )
        if not value:
            return value
        if any(known in value.lower() for known in KNOWN_SECRETS):
            self.fault("SECRET_KEY looks like an example that everybody knows: make a random one.")
        elif len(value) < MIN_SECRET_KEY_CHARACTERS or len(set(value)) < MIN_SECRET_KEY_DISTINCT:
            self.fault(
                f"SECRET_KEY is too weak: it needs at least {MIN_SECRET_KEY_CHARACTERS} characters, "
                f"{MIN_SECRET_KEY_DISTINCT} of them different."
            )
        return value

    def postgres_url(self, name: str, required: bool = True) -> str:
        """A PostgreSQL URL; a socket folder is written percent-encoded in place of the host."""
        what = "a URL like postgres://user:password@host:5432/kvaudit"
        value = self.required(name, what) if required else self.text(name)
        if not value:
            return value
        scheme = value.partition(":")[0].lower()
        if scheme not in {"postgres", "postgresql"}:
            self.fault(f"{name} must be {what}: kvaudit keeps its records in PostgreSQL, not {scheme!r}.")
            return value
        try:
            parts = urlsplit(value)
            port_ok = parts.port is None or parts.port > 0
        except ValueError:
            port_ok, parts = False, urlsplit("")
        if not port_ok or not parts.hostname or not parts.username or not parts.path.strip("/"):
            self.fault(f"{name} must name a user, a host and a database: {what}.")
        return value

    def broker_url(self) -> str:
        """The URL of a Valkey or Redis server."""
        what = "a URL like redis://:password@host:6379/0"
        value = self.required("BROKER_URL", what)
        schemes = {"redis", "rediss", "redis+socket", "valkey", "valkeys"}
        if value and value.partition(":")[0].lower() not in schemes:
            self.fault(f"BROKER_URL must be {what} (Valkey or Redis).")
        return value.replace("valkeys://", "rediss://", 1).replace("valkey://", "redis://", 1)

    def encryption_keys(self) -> list[str]:
        """Fernet keys, newest first; more than one while a key is being changed."""
        name = "ENCRYPTION_KEYS" if self.text("ENCRYPTION_KEYS") else "ENCRYPTION_KEY"
        keys = self.names(name)
        if not self.text(name):
            self.required(
                "ENCRYPTION_KEY",
                "the key that encrypts credentials at rest (44 characters, base64 of 32 bytes)",
            )
        for position, key in enumerate(keys, start=1):
            if not _is_key(key):
                which = f"{name} (key {position})" if len(keys) > 1 else name
                self.fault(
                    f"{which} is not a usable key: it must be 32 random bytes in URL-safe base64 "
                    "(44 characters)."
                )
        return keys

    def seal_key(self, name: str) -> str:
        """A key of the pair that seals generated text; "" where none is given."""
        value = self.text(name)
        if value and not _is_key(value):
            self.fault(f"{name} is not a usable key: it must be 32 bytes in URL-safe base64 (44 characters).")
        return value

    def allowed_hosts(self) -> list[str]:
        """The host names kvaudit answers to; never all of them."""
        what = "the host names that kvaudit is reached by, separated by commas"
        hosts = self.names("ALLOWED_HOSTS")
        if not self.text("ALLOWED_HOSTS"):
            self.required("ALLOWED_HOSTS", what)
        if "*" in hosts:
            self.fault(
                "ALLOWED_HOSTS must not be '*', which lets a forged Host header into links and mails: "
                f"give {what}."
            )
        return hosts

    def base_url(self) -> str:
        """Where people reach kvaudit, without a slash at the end; used in mails and webhooks."""
        value = self.text("KVAUDIT_BASE_URL", "http://127.0.0.1:8000").rstrip("/")
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path or parts.query:
            self.fault("KVAUDIT_BASE_URL must be like https://kvaudit.example.org, without a path.")
        return value


def _is_key(text: str) -> bool:
    """Whether it is 32 bytes in URL-safe base64."""
    try:
        # altchars with validate: urlsafe_b64decode would silently skip foreign characters
        return len(base64.b64decode(text, altchars=b"-_", validate=True)) == 32
    except (binascii.Error, ValueError):
        return False
