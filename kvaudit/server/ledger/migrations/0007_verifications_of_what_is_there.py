"""A verification that says intact names an entry that is there: one made up, with a number to come, would have every
verification after it say that the end was cut off, for good, and hide what else they would find."""

from django.db import migrations

from kvaudit.server.ledger.guards import trigger

FUNCTION = """
CREATE FUNCTION ledger_verification_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF NEW.outcome = 'intact' AND NEW.entries <> 0 AND NOT EXISTS (
        SELECT 1 FROM public.ledger_entry entry WHERE entry.sequence = NEW.entries AND entry.hash = NEW.last_hash) THEN
        RAISE EXCEPTION 'a verification is part of the record: no entry % has the hash that it names', NEW.entries
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
"""
GUARD = trigger("ledger_verification", "guard", "INSERT OR UPDATE", "ledger_verification_guard")


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_guard_of_verifications")]
    operations = [
        migrations.RunSQL(FUNCTION + GUARD[0], GUARD[1] + "DROP FUNCTION ledger_verification_guard();")
    ]
