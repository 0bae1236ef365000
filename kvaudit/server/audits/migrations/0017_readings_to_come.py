"""A reading of a moment that has not come counts for nothing and is brought back by the next one, as an interval is: the
guard refused that, and with it everything that was read of such a node until the moment had come."""

from django.db import migrations

GUARD = """
CREATE OR REPLACE FUNCTION fleet_nodesnapshot_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF (NEW.last_confirmed < OLD.last_confirmed{and_has_come}) OR (NEW.current AND NOT OLD.current) THEN
        RAISE EXCEPTION 'reading %: it goes forwards only', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("audits", "0016_worker_clocks")]
    operations = [
        migrations.RunSQL(
            GUARD.replace("{and_has_come}", " AND OLD.last_confirmed <= clock_timestamp()"),
            GUARD.replace("{and_has_come}", ""),
        )
    ]
