"""The five roles are groups; they carry no Django permissions, `kvaudit.server.accounts.roles` says what each may."""

from django.db import migrations

ROLES = ("viewer", "auditor", "operator", "approver", "admin")


def create(apps, schema_editor):
    group = apps.get_model("auth", "Group")
    for name in ROLES:
        group.objects.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
