"""What one machine need not be told: variables of the environment that `kvaudit up` makes itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nacl.encoding import URLSafeBase64Encoder
from nacl.public import PrivateKey

from kvaudit.server.ops.addons import lab_ports_file
from kvaudit.server.ops.environment import Environment
from kvaudit.server.ops.launch import Launch
from kvaudit.server.ops.state import State

TYPED_BESIDE = ("EGRESS_ALLOW", "EGRESS_DENY", "KVAUDIT_TLS_FOLDER")
"""What commands typed beside the product must know as well: an import says what its addresses and files lack."""


def own_variables(launch: Launch, servers: dict[str, str]) -> dict[str, str]:
    """What one machine need not be told: secrets made here, hosts and URLs that follow from the port."""
    environment = Environment(os.environ)
    wanted: dict[str, Callable[[], str]] = {
        "SECRET_KEY": lambda: str(launch.state.secret("secret_key")),
        "ENCRYPTION_KEY": lambda: str(launch.state.secret("encryption_key")),
    }
    own = {
        f"{name}_FILE": make()
        for name, make in wanted.items()
        if not environment.text(name)
        and not (name == "ENCRYPTION_KEY" and environment.text("ENCRYPTION_KEYS"))
    }
    if not environment.text("SEAL_PUBLIC_KEY"):
        own["SEAL_PUBLIC_KEY"] = public_half(launch.state.secret("seal_private_key"))
    hosts = ["127.0.0.1", "localhost", "[::1]"]
    if launch.host not in {*hosts, "0.0.0.0", "::", "::1"}:  # noqa: S104 - compared, not bound
        hosts.append(launch.host)
    defaults = {
        "ALLOWED_HOSTS": ",".join(hosts),
        "KVAUDIT_BASE_URL": launch.url,
        "STATIC_ROOT": str(launch.state.static),
        "STATE_FOLDER": str(launch.state.folder),
        "LEDGER_HEAD_FILE": str(launch.state.folder / "ledger_head.json"),
    }
    own |= {name: value for name, value in defaults.items() if not environment.text(name)}
    own |= {"DJANGO_SETTINGS_MODULE": "kvaudit.settings", "PYTHONUNBUFFERED": "1"}
    own |= {"KVAUDIT_HOST": launch.host, "KVAUDIT_PORT": str(launch.port)}
    own |= {"EGRESS_LAB_FILE": str(lab_ports_file(launch))}
    own |= {name: os.environ[name] for name in TYPED_BESIDE if os.environ.get(name)}
    environment.finish()
    return own


def private_half(state: State) -> dict[str, str]:
    """The variable that lets the web open sealed text: the operator's, else that of the pair made here. An
    operator who gave a public key alone opens what it sealed elsewhere."""
    names = ("SEAL_PRIVATE_KEY", "SEAL_PRIVATE_KEY_FILE")
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    if given or Environment(os.environ).text("SEAL_PUBLIC_KEY"):
        return given
    return {"SEAL_PRIVATE_KEY_FILE": str(state.secret("seal_private_key"))}


def public_half(private_key: Path) -> str:
    """What seals generated text so that only the holder of ``private_key`` can open it."""
    key = PrivateKey(private_key.read_bytes().strip(), URLSafeBase64Encoder)
    return key.public_key.encode(URLSafeBase64Encoder).decode("ascii")
