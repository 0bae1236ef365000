#!/usr/bin/env python
"""Django's command line for kvaudit; beside a running ``make up`` it finds that machine's database."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")
    from kvaudit.server.ops.state import adopt_local_environment

    adopt_local_environment()

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
