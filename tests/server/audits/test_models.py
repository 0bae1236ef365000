"""The constraints that every other promise rests on."""

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", "audits", check=True, dry_run=True, skip_checks=True)
