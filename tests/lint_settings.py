"""kvaudit's settings for tools that only look at code: mypy's plugin, makemigrations --check."""

import os

for _name, _value in {
    "SECRET_KEY": "only-for-tools-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEF",
    "ENCRYPTION_KEY": "dG9vbHMtb25seS10b29scy1vbmx5LXRvb2xzLW9ubHk=",
    "ALLOWED_HOSTS": "localhost",
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing",
    "BROKER_URL": "redis://127.0.0.1:1/0",
}.items():
    if f"{_name}_FILE" not in os.environ:
        os.environ.setdefault(_name, _value)

from kvaudit.settings import *  # noqa: E402, F403 - the variables come first
