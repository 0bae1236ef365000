"""Results, evidence, runs and intervals are written once or move forwards only, also for a role that was granted more.

The fleet's tables are guarded here too: they are the audits' ground, and their guards need no column of their own."""

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, insert_only, joined, kept, once, trigger

FUNCTIONS = """
-- A run that ended stays as it is; what it is about never changes.
CREATE FUNCTION audits_run_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF OLD.state IN ('finished', 'cancelled', 'missed') THEN
        RAISE EXCEPTION 'run % has ended and stays as it is', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF (OLD.deployment_id, OLD.kind, OLD.trigger, OLD.checks, OLD.slots, OLD.created_at)
            IS DISTINCT FROM (NEW.deployment_id, NEW.kind, NEW.trigger, NEW.checks, NEW.slots, NEW.created_at)
        OR (OLD.plan_id, OLD.slot, OLD.retry_of_id, OLD.actor_id)
            IS DISTINCT FROM (NEW.plan_id, NEW.slot, NEW.retry_of_id, NEW.actor_id)
        OR (OLD.started_at IS NOT NULL AND OLD.started_at IS DISTINCT FROM NEW.started_at)
        OR (OLD.seed IS NOT NULL AND OLD.seed IS DISTINCT FROM NEW.seed) THEN
        RAISE EXCEPTION 'run %: what it is about never changes', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

-- An interval goes forwards: a later result confirms it, or closes it once. Its verdict stays. The other way only what
-- takes nothing back: a fail may turn out to have begun earlier and to have lasted longer, what is closed may turn out to
-- have ended earlier (by a fail that was heard of late), and a time that has not come is no time.
CREATE FUNCTION audits_checkstate_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    failed boolean := OLD.verdict = 'fail';
    to_come boolean := OLD.last_confirmed > clock_timestamp();
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF (OLD.deployment_id, OLD.node_id, OLD.check_id, OLD.verdict, OLD.warn, OLD.severity, OLD.fingerprint)
        IS DISTINCT FROM
       (NEW.deployment_id, NEW.node_id, NEW.check_id, NEW.verdict, NEW.warn, NEW.severity, NEW.fingerprint) THEN
        RAISE EXCEPTION 'interval %: its verdict never changes', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.since > OLD.since OR (NEW.since < OLD.since AND NOT failed AND NOT to_come) THEN
        RAISE EXCEPTION 'interval %: its beginning never changes', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.last_confirmed < OLD.last_confirmed AND NEW.closed_at IS NULL AND NOT to_come THEN
        RAISE EXCEPTION 'interval %: last_confirmed only grows', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.closed_at < NEW.last_confirmed THEN
        RAISE EXCEPTION 'interval %: it cannot end before it was last confirmed', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.closed_at IS NOT NULL AND (
        NEW.closed_at IS NULL OR NEW.closed_at > OLD.closed_at OR NEW.last_confirmed > OLD.last_confirmed
        OR (OLD.expires_at, OLD.expired_by, OLD.run_id, OLD.result_id, OLD.summary)
            IS DISTINCT FROM (NEW.expires_at, NEW.expired_by, NEW.run_id, NEW.result_id, NEW.summary)) THEN
        RAISE EXCEPTION 'interval %: it is closed and stays as it is', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.result_id = OLD.result_id THEN
        IF (OLD.run_id, OLD.summary, OLD."interval") IS DISTINCT FROM (NEW.run_id, NEW.summary, NEW."interval")
            OR (NOT failed AND (NEW.last_confirmed > OLD.last_confirmed OR NEW.expires_at > OLD.expires_at)) THEN
            RAISE EXCEPTION 'interval %: only another result confirms it', OLD.id
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    ELSIF NEW.last_confirmed = OLD.last_confirmed THEN
        RAISE EXCEPTION 'interval %: only a later result confirms it', OLD.id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.zone_low > OLD.zone_low OR NEW.zone_high < OLD.zone_high
        OR (OLD.zone_low IS NOT NULL AND NEW.zone_low IS NULL) THEN
        RAISE EXCEPTION 'interval %: a danger zone only widens', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION fleet_nodesnapshot_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF NEW.last_confirmed < OLD.last_confirmed OR (NEW.current AND NOT OLD.current) THEN
        RAISE EXCEPTION 'reading %: it goes forwards only', OLD.id USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
"""

GUARDS = joined(
    insert_only("audits_result"),
    insert_only("audits_evidence", delete_by_grant=True),
    insert_only("audits_runevidence", delete_by_grant=True),
    insert_only("audits_prunedevidence"),
    insert_only("audits_statechange"),
    insert_only("audits_plan_deployments"),
    kept("audits_run"),
    trigger("audits_run", "guard", "UPDATE", "audits_run_guard"),
    kept("audits_checkstate"),
    trigger("audits_checkstate", "guard", "UPDATE", "audits_checkstate_guard"),
    kept("audits_overdue"),
    fixed("audits_overdue", "plan_id", "deployment_id", "since"),
    once("audits_overdue", "until"),
    kept("audits_plan"),
    fixed(
        "audits_plan", "series", "name", "kind", "checks", "team_id", "engine", "cron", "zone", "interval", "windows",
        "enabled", "valid_from",
    ),
    once("audits_plan", "valid_to"),
    kept("fleet_deployment"),
    fixed("fleet_deployment", "slug", "created_at"),
    kept("fleet_node"),
    fixed("fleet_node", "deployment_id", "name", "role", "engine", "url", "valid_from"),
    once("fleet_node", "valid_to"),
    kept("fleet_tenant"),
    fixed("fleet_tenant", "deployment_id", "name", "valid_from"),
    once("fleet_tenant", "valid_to"),
    *(
        guard
        for table in ("fleet_pin", "fleet_consent", "fleet_pause")
        for guard in (kept(table), fixed(table, "deployment_id", "reason", "valid_from"), ended(table, "valid_to"))
    ),
    kept("fleet_nodesnapshot"),
    trigger("fleet_nodesnapshot", "guard", "UPDATE", "fleet_nodesnapshot_guard"),
    insert_only("fleet_fingerprintchange"),
)  # fmt: skip

BACKWARD = """
DROP FUNCTION fleet_nodesnapshot_guard();
DROP FUNCTION audits_checkstate_guard();
DROP FUNCTION audits_run_guard();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("audits", "0009_pruned_evidence"),
        ("fleet", "0005_where_keys_come_from"),
        ("ledger", "0005_chain_in_the_database"),
    ]
    operations = [migrations.RunSQL(FUNCTIONS + GUARDS[0], GUARDS[1] + BACKWARD)]
