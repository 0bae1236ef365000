"""``manage.py initialise``: before the first start and after every upgrade."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from kvaudit.server.ops.environment import Environment, EnvironmentFault
from kvaudit.server.ops.initialise import InitialiseFault, initialise
from kvaudit.server.ops.static_files import collect_static


class Command(BaseCommand):
    help = "Makes the database usable: role, tables, permissions, administrator (password printed once)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--wait", type=float, default=0, metavar="S", help="wait S seconds for PostgreSQL"
        )
        parser.add_argument("--static", action="store_true", help="also collect the static files")
        parser.add_argument(
            "--set-password",
            action="store_true",
            help="give KVAUDIT_ADMIN_PASSWORD to an existing admin as well; a new one ends their sessions and revokes "
            "their API tokens",
        )
        parser.add_argument(
            "--accept-rollback",
            action="store_true",
            help="go on with a database that ends before the ledger's head kept outside; it is recorded",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["json"]

        def say(step: str) -> None:
            self.stdout.write(json.dumps({"step": step}) if as_json else step)
            self.stdout.flush()

        environment = Environment(os.environ)
        password = environment.text("KVAUDIT_ADMIN_PASSWORD")
        try:
            environment.finish()
            admin = initialise(
                admin_password=password,
                set_password=options["set_password"],
                wait=options["wait"],
                accept_rollback=options["accept_rollback"],
                say=say,
            )
        except (EnvironmentFault, InitialiseFault) as fault:
            raise CommandError(str(fault)) from fault
        except DatabaseError as error:
            raise CommandError(f"The database refused: {str(error).strip()}") from error
        if as_json:
            self.stdout.write(json.dumps({"user": admin.username, "password": admin.password}))
        elif admin.password and admin.password == password:
            self.stdout.write(f"administrator {admin.username}, with the password of KVAUDIT_ADMIN_PASSWORD")
        elif admin.password:
            self.stdout.write(f"administrator {admin.username}, one-time password: {admin.password}")
        else:
            self.stdout.write(f"administrator {admin.username}, password unchanged")
        self.stdout.flush()  # whoever waits for the password gets it, even when the rest is interrupted
        if options["static"] and collect_static():
            say("static files collected")
