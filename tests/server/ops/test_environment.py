"""The variables: missing, unsafe, from files; every fault is one sentence that names its variable."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from kvaudit.server.ops.environment import Environment, EnvironmentFault

GOOD_SECRET = "r4nd0m-bits-" * 5
KEY = base64.urlsafe_b64encode(b"k" * 32).decode()


def faults(read: Callable[[Environment], object], **variables: str) -> list[str]:
    environment = Environment(variables)
    read(environment)
    return environment.faults


@pytest.mark.parametrize(
    ("read", "variables", "sentence"),
    [
        (Environment.secret_key, {}, "SECRET_KEY is not set"),
        (Environment.secret_key, {"SECRET_KEY": "   "}, "SECRET_KEY is not set"),
        (Environment.secret_key, {"SECRET_KEY": "short"}, "SECRET_KEY is too weak"),
        (Environment.secret_key, {"SECRET_KEY": "a" * 64}, "SECRET_KEY is too weak"),
        (Environment.secret_key, {"SECRET_KEY": "django-insecure-" + GOOD_SECRET}, "that everybody knows"),
        (Environment.secret_key, {"SECRET_KEY": "ChangeMe" * 10}, "that everybody knows"),
        (Environment.allowed_hosts, {}, "ALLOWED_HOSTS is not set"),
        (Environment.allowed_hosts, {"ALLOWED_HOSTS": " , "}, "ALLOWED_HOSTS"),
        (Environment.allowed_hosts, {"ALLOWED_HOSTS": "a.example, *"}, "ALLOWED_HOSTS must not be '*'"),
        (Environment.broker_url, {}, "BROKER_URL is not set"),
        (Environment.broker_url, {"BROKER_URL": "amqp://x"}, "BROKER_URL must be a URL like redis://"),
        (Environment.encryption_keys, {}, "ENCRYPTION_KEY is not set"),
        (Environment.encryption_keys, {"ENCRYPTION_KEY": "x" * 44}, "ENCRYPTION_KEY is not a usable key"),
        (Environment.encryption_keys, {"ENCRYPTION_KEY": KEY[:-2]}, "ENCRYPTION_KEY is not a usable key"),
        (Environment.encryption_keys, {"ENCRYPTION_KEYS": f"{KEY},nonsense"}, "ENCRYPTION_KEYS (key 2)"),
        (lambda env: env.seal_key("SEAL_PUBLIC_KEY"), {"SEAL_PUBLIC_KEY": KEY[:-2]}, "SEAL_PUBLIC_KEY is not a usable"),
        (Environment.base_url, {"KVAUDIT_BASE_URL": "kvaudit.example.org"}, "KVAUDIT_BASE_URL must be like"),
        (Environment.base_url, {"KVAUDIT_BASE_URL": "https://a.example/path"}, "KVAUDIT_BASE_URL must be like"),
    ],
)  # fmt: skip
def test_missing_and_unsafe(
    read: Callable[[Environment], object], variables: dict[str, str], sentence: str
) -> None:
    said = faults(read, **variables)
    assert len(said) == 1, said
    assert sentence in said[0]
    assert said[0].endswith(".")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite:///db.sqlite3",
        "mysql://u:p@h/d",
        "postgres://host/db",
        "postgres://u:p@h",
        "postgres://u:p@h:port/d",
    ],
)
def test_only_a_complete_postgres_url_is_a_database(url: str) -> None:
    said = faults(lambda environment: environment.postgres_url("DATABASE_URL"), DATABASE_URL=url)
    assert len(said) == 1
    assert said[0].startswith("DATABASE_URL")


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u@h/d",
        "postgresql://u:p%40@h:5432/d",
        "postgres://u@%2Frun%2Fpg/d",
        "postgres://u@[::1]/d",
    ],
)
def test_postgres_urls_that_are_good(url: str) -> None:
    assert faults(lambda environment: environment.postgres_url("DATABASE_URL"), DATABASE_URL=url) == []


def test_no_fault_repeats_a_secret() -> None:
    environment = Environment(
        {
            "SECRET_KEY": "hunter2hunter2",
            "ENCRYPTION_KEY": "hunter2hunter2",
            "DATABASE_URL": "mysql://u:hunter2@h/d",
            "BROKER_URL": "amqp://:hunter2@h",
        }
    )
    environment.secret_key()
    environment.encryption_keys()
    environment.postgres_url("DATABASE_URL")
    environment.broker_url()
    with pytest.raises(EnvironmentFault) as caught:
        environment.finish()
    assert len(str(caught.value).splitlines()) == 4
    assert "hunter2" not in str(caught.value)


def test_a_value_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"  {GOOD_SECRET}\n")
    environment = Environment({"SECRET_KEY_FILE": str(path)})
    assert environment.secret_key() == GOOD_SECRET
    assert environment.faults == []


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "cannot be read"), (b"", "is empty"), (b"\xff\xfe\x80", "is not text")]
)
def test_a_file_that_gives_no_value(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    said = faults(Environment.secret_key, SECRET_KEY_FILE=str(path))
    assert len(said) == 1
    assert "SECRET_KEY_FILE" in said[0]
    assert sentence in said[0]


def test_both_forms_at_once_are_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(GOOD_SECRET)
    said = faults(Environment.secret_key, SECRET_KEY=GOOD_SECRET, SECRET_KEY_FILE=str(path))
    assert said == ["SECRET_KEY and SECRET_KEY_FILE are both set: keep one of them."]


@pytest.mark.parametrize(
    ("text", "value"), [("", False), ("1", True), ("TRUE", True), ("off", False), ("no", False)]
)
def test_flags(text: str, value: bool) -> None:
    assert Environment({"DEBUG": text}).flag("DEBUG") is value


def test_a_flag_that_is_neither() -> None:
    assert faults(lambda environment: environment.flag("DEBUG"), DEBUG="maybe") == [
        "DEBUG must be 1 or 0, not 'maybe'."
    ]


@pytest.mark.parametrize("text", ["x", "nan", "0", "70000", "inf"])
def test_a_number_out_of_its_range(text: str) -> None:
    said = faults(lambda environment: environment.number("EMAIL_PORT", 25, 1, 65535), EMAIL_PORT=text)
    assert said == [f"EMAIL_PORT must be a number from 1 to 65535, not {text!r}."]


def test_valkey_urls_are_spoken_to_as_redis() -> None:
    assert Environment({"BROKER_URL": "valkey://h/0"}).broker_url() == "redis://h/0"
    assert Environment({"BROKER_URL": "valkeys://h/0"}).broker_url() == "rediss://h/0"


def test_several_encryption_keys_keep_their_order() -> None:
    second = base64.urlsafe_b64encode(b"j" * 32).decode()
    assert Environment({"ENCRYPTION_KEYS": f"{KEY}, {second}"}).encryption_keys() == [KEY, second]
