"""Refuse UPDATE, DELETE and TRUNCATE on the ledger in the database itself, for every role.

The application's role lacks the privileges as well (`kvaudit.server.ledger.grants`); the triggers also
stop the owner's own slips.
"""

from django.db import migrations

FORWARD = """
CREATE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: % of ledger_entry is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER ledger_entry_no_change BEFORE UPDATE OR DELETE ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER ledger_entry_no_truncate BEFORE TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();
"""

BACKWARD = """
DROP TRIGGER ledger_entry_no_truncate ON ledger_entry;
DROP TRIGGER ledger_entry_no_change ON ledger_entry;
DROP FUNCTION ledger_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
