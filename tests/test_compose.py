"""docker-compose.yml: nothing here can run it, so everything it names is looked up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kvaudit.server.ops.environment import Environment

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text()
REFERENCE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?P<how>:-|:\?)(?P<rest>[^}]*)\}")
OURS = ("initializer", "web", "worker-passive", "worker-active", "beat", "retention")
SECRET_WORDS = ("SECRET", "KEY", "PASSWORD", "TOKEN", "_URL")


def interpolated() -> dict[str, Any]:
    """The file as Compose would read it, required variables set."""
    text = REFERENCE.sub(lambda m: "example.org" if m["how"] == ":?" else m["rest"], TEXT.replace("$$", "$"))
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


COMPOSE = interpolated()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that deploy/secrets.sh makes."""
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    subprocess.run([ROOT / "deploy" / "secrets.sh", folder], check=True, capture_output=True)
    return folder


def test_it_follows_the_compose_specification() -> None:
    schema = json.loads((ROOT / "tests" / "schemas" / "compose-spec.json").read_text())
    jsonschema.Draft201909Validator(schema).validate(COMPOSE)


def test_the_schema_can_refuse() -> None:
    schema = json.loads((ROOT / "tests" / "schemas" / "compose-spec.json").read_text())
    broken = interpolated()
    broken["services"]["web"]["restarts"] = "always"
    with pytest.raises(jsonschema.ValidationError, match="restarts"):
        jsonschema.Draft201909Validator(schema).validate(broken)


def test_every_variable_reference_has_a_default_or_a_sentence() -> None:
    plain = REFERENCE.sub("", TEXT.replace("$$", ""))
    comments = re.sub(r"#.*", "", plain)
    assert "$" not in comments, "a variable without a default or a sentence"
    for found in REFERENCE.finditer(TEXT):
        if found["how"] == ":?":
            assert len(found["rest"].split()) > 5, f"{found['name']}: no sentence for whoever starts it"


def test_no_secret_has_a_default() -> None:
    for found in REFERENCE.finditer(TEXT):
        names_a_folder = found["name"] == "KVAUDIT_SECRETS"
        if (
            found["how"] == ":-"
            and any(word in found["name"] for word in SECRET_WORDS)
            and not names_a_folder
        ):
            assert not found["rest"], f"{found['name']} has the default {found['rest']!r}"
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in SECRET_WORDS) and not name.endswith("_FILE"):
                assert value in (None, "", "example.org"), f"{name} has a value in the file"


def test_the_services_of_the_multi_machine_shape() -> None:
    assert set(SERVICES) == {"postgres", "valkey", *OURS}
    for name, service in SERVICES.items():
        assert service["restart"] == ("on-failure" if name == "initializer" else "unless-stopped"), name
        assert name == "initializer" or service["healthcheck"]["test"], name
        for other, how in service.get("depends_on", {}).items():
            assert other in SERVICES
            one_shot = other == "initializer"
            assert how["condition"] == ("service_completed_successfully" if one_shot else "service_healthy")
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        for volume in service.get("volumes", []):
            place = volume.partition(":")[0]
            assert place in COMPOSE["volumes"] or (place == "./tls" and volume.endswith(":ro"))
    for name in OURS:
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert "container_name" not in SERVICES[name], "a name of its own forbids --scale"
    assert "ports" not in SERVICES["postgres"]
    assert "ports" not in SERVICES["valkey"]


def test_only_the_initializer_gets_the_owner_of_the_tables() -> None:
    for name, service in SERVICES.items():
        assert ("database_owner_url" in service["secrets"]) == (name == "initializer")


def test_workers_seal_and_the_web_alone_opens(secrets: Path) -> None:
    from nacl.encoding import URLSafeBase64Encoder
    from nacl.public import PrivateKey, PublicKey, SealedBox

    holders = {name for name in SERVICES if "seal_private_key" in SERVICES[name].get("secrets", ())}
    assert holders == {"web"}
    for name in ("worker-passive", "worker-active"):
        assert "seal_public_key" in SERVICES[name]["secrets"]
    public = PublicKey((secrets / "seal_public_key").read_bytes().strip(), URLSafeBase64Encoder)
    private = PrivateKey((secrets / "seal_private_key").read_bytes().strip(), URLSafeBase64Encoder)
    assert SealedBox(private).decrypt(SealedBox(public).encrypt(b"words")) == b"words"


def known_variables() -> set[str]:
    """Every variable that the code reads: settings.py and the environment's own methods, gunicorn, ops."""
    files = [
        ROOT / "kvaudit" / "settings.py",
        ROOT / "kvaudit" / "celery.py",
        *(ROOT / "kvaudit" / "server" / "ops").rglob("*.py"),
    ]
    return {name for path in files for name in re.findall(r'"([A-Z][A-Z_]{3,})"', path.read_text())}


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_one_that_the_code_reads(name: str) -> None:
    known = known_variables()
    for each in SERVICES[name]["environment"]:
        assert each in known or each.removesuffix("_FILE") in known, each


def test_every_secret_file_named_exists_as_secret_of_the_service() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if variable.endswith("_FILE") and variable not in ("KVAUDIT_ALIVE_FILE", "LEDGER_HEAD_FILE"):
                folder, _, secret = str(value).rpartition("/")
                assert folder == "/run/secrets"
                assert secret in service["secrets"], f"{name}: {variable}"


def test_the_script_makes_every_secret(secrets: Path) -> None:
    assert {path.name for path in secrets.iterdir()} == set(COMPOSE["secrets"])
    for name, entry in COMPOSE["secrets"].items():
        assert entry["file"] == f"./secrets/{name}"
    assert secrets.stat().st_mode & 0o077 == 0
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    subprocess.run([ROOT / "deploy" / "secrets.sh", secrets], check=True, capture_output=True)
    assert before == {path.name: path.read_text() for path in secrets.iterdir()}, (
        "a second run changes nothing"
    )


def test_git_ignores_the_secrets() -> None:
    assert "secrets/" in (ROOT / ".gitignore").read_text().split()


def test_passwords_agree(secrets: Path) -> None:
    owner = Environment({"DATABASE_URL_FILE": str(secrets / "database_owner_url")}).postgres_url(
        "DATABASE_URL"
    )
    assert f"kvaudit_owner:{(secrets / 'postgres_password').read_text().strip()}@postgres" in owner
    assert SERVICES["postgres"]["environment"]["POSTGRES_USER"] == "kvaudit_owner"
    assert owner.endswith("/" + SERVICES["postgres"]["environment"]["POSTGRES_DB"])
    broker = (secrets / "valkey_password").read_text().strip()
    assert f"requirepass {broker}\n" in (secrets / "valkey_conf").read_text()
    assert broker in (secrets / "broker_url").read_text()


@pytest.mark.parametrize("name", OURS)
def test_settings_accept_the_environment_of_the_service(name: str, secrets: Path) -> None:
    """settings.py in a process of its own, with exactly what the container would have."""
    environment = {
        variable: str("" if value is None else value).replace("/run/secrets", str(secrets))
        for variable, value in SERVICES[name]["environment"].items()
    }
    environment["KVAUDIT_BASE_URL"] = "https://example.org"
    code = "import kvaudit.settings as s; "
    code += "print(s.DATABASES['default']['USER'], s.CELERY_BROKER_URL, s.SESSION_COOKIE_SECURE)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PATH": os.environ["PATH"]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    user, broker, secure = done.stdout.split()
    assert user == ("kvaudit_retention" if name == "retention" else "kvaudit_app")
    assert broker.startswith("redis://:")
    assert secure == "True"


@pytest.mark.parametrize("name", OURS)
def test_every_command_exists(name: str) -> None:
    service = SERVICES[name]
    check_command(service["command"])
    if "healthcheck" in service:
        kind, *command = service["healthcheck"]["test"]
        assert kind == "CMD"
        check_command(command)


def check_command(command: list[str]) -> None:
    program, *rest = command
    if program == "python":
        assert rest[0] == "-m"
        assert find_spec(rest[1]), rest[1]
        if rest[1] == "django":
            check_management_command(rest[2], rest[3:])
    elif program == "gunicorn":
        assert rest == ["-c", "python:kvaudit.server.ops.gunicorn_conf"]
        from kvaudit.server.ops import gunicorn_conf

        module, _, attribute = gunicorn_conf.wsgi_app.partition(":")
        found = find_spec(module)  # not imported: the application would look for its static files
        assert found
        assert found.origin
        assert f"\n{attribute} = " in Path(found.origin).read_text()
    elif program == "celery":
        check_celery(rest)
    else:
        pytest.fail(f"{program} is not in the image")


def check_management_command(name: str, options: list[str]) -> None:
    from django.core.management import get_commands, load_command_class

    command = load_command_class(get_commands()[name], name)
    command.create_parser("django", name).parse_args(options)


def check_celery(arguments: list[str]) -> None:
    from celery import Celery
    from celery.bin.celery import celery as program
    from django.conf import settings

    assert arguments[0] == "-A"
    assert isinstance(import_module(arguments[1]).app, Celery)
    name, options = arguments[2], arguments[3:]
    subcommand = program.commands[name]
    context = subcommand.make_context(name, list(options), resilient_parsing=True)
    known = {option for param in subcommand.params for option in (*param.opts, *param.secondary_opts)}
    assert {option.partition("=")[0] for option in options if option.startswith("-")} <= known
    if name == "worker":
        queues = str(options[options.index("-Q") + 1]).split(",")
        routed = {entry["options"]["queue"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
        assert queues in (["passive", "maintenance", "desk"], ["active", "maintenance", "desk"])
        assert routed == {"maintenance"}, "beat sends to a queue that every worker serves"
        assert context


def test_queues_are_those_that_runs_are_sent_to() -> None:
    from kvaudit.server.audits.models import Kind

    asked = {SERVICES[name]["command"][5] for name in OURS if name.startswith("worker")}
    assert asked == {f"{kind.value},maintenance,desk" for kind in Kind}


DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_image_copies_what_exists_and_runs_as_nobody_special() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), f"COPY {source}"
            assert f"!{source}" in ignored, f"{source} does not reach the build"
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert user
    assert int(user[1]) > 0
    assert "--require-hashes" in DOCKERFILE
    assert json.loads(final.rpartition("CMD ")[2]) == SERVICES["web"]["command"]


def test_the_documented_variables_are_those_that_are_read() -> None:
    text = (ROOT / "deploy" / "README.md").read_text()
    table = text.partition("## Variables")[2].partition("## What to watch")[0]
    documented = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([A-Z_]{4,})`", line.split("|")[1])
    }
    assert "SECRET_KEY" in documented
    settings = (ROOT / "kvaudit" / "settings.py").read_text()
    read = set(re.findall(r'_env\.\w+\(\s*"([A-Z_]+)"', settings))
    assert read <= documented | {"EMAIL_BACKEND"}
    assert (
        not {each for each in documented if each not in settings}
        - known_variables()
        - {each for each in documented if each.startswith("AUDIT_")}
    )


def test_retention_alone_holds_the_role_that_deletes_evidence() -> None:
    holders = {name for name in SERVICES if "database_retention_url" in SERVICES[name].get("secrets", ())}
    assert holders == {"initializer", "retention"}
    assert "database_url" not in SERVICES["retention"]["secrets"]
