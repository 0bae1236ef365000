"""The database itself numbers, dates and chains what is appended; the guards of other tables of the record.

Whoever appends says who, what kind, about what and with which digest. Everything else is set here, whatever the
statement says: a role that may INSERT could else write entries of yesterday, with a hash of its own, or with the last
number there is. `ledger_json_text` writes a string exactly as Python's ``json.dumps(..., ensure_ascii=True)`` does
(`kvaudit.server.ledger.chain`). The functions fix their search path and quote no backslash, so that no setting of a session
changes what they compute.

The guards let the owner of a table pass (migrations need that, and the owner could switch them off anyway); they stop
every other role, whatever somebody granted it.
"""

from django.db import migrations

CHAIN = """
CREATE FUNCTION ledger_json_text(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said text := '';
    sign text;
    code integer;
BEGIN
    IF value !~ '[^ -~]' COLLATE "C" AND strpos(value, chr(34)) = 0 AND strpos(value, chr(92)) = 0 THEN
        RETURN chr(34) || value || chr(34);
    END IF;
    FOREACH sign IN ARRAY string_to_array(value, NULL) LOOP
        code := ascii(sign);
        said := said || CASE
            WHEN code IN (34, 92) THEN chr(92) || sign
            WHEN code BETWEEN 32 AND 126 THEN sign
            WHEN code = 8 THEN chr(92) || 'b'
            WHEN code = 9 THEN chr(92) || 't'
            WHEN code = 10 THEN chr(92) || 'n'
            WHEN code = 12 THEN chr(92) || 'f'
            WHEN code = 13 THEN chr(92) || 'r'
            WHEN code < 65536 THEN chr(92) || 'u' || lpad(to_hex(code), 4, '0')
            ELSE chr(92) || 'u' || to_hex(55296 + ((code - 65536) >> 10))
                || chr(92) || 'u' || to_hex(56320 + ((code - 65536) & 1023))
        END;
    END LOOP;
    RETURN chr(34) || said || chr(34);
END
$$;

CREATE FUNCTION ledger_chain() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last record;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'the ledger needs a database in UTF8, and this one is in %', getdatabaseencoding();
    END IF;
    IF coalesce(NEW.actor, '') = '' OR coalesce(NEW.kind, '') = '' OR coalesce(NEW.subject, '') = '' THEN
        RAISE EXCEPTION 'a ledger entry needs an actor, a kind and a subject' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.digest IS NULL OR NEW.digest !~ '^([0-9a-f]{64})?$' THEN
        RAISE EXCEPTION 'a ledger digest is a SHA-256 in hex or empty' USING ERRCODE = 'check_violation';
    END IF;
    -- Two statements: the snapshot of the second is taken after the lock is held.
    PERFORM pg_advisory_xact_lock(1802923108);
    SELECT entry.sequence, entry.hash INTO last
        FROM public.ledger_entry entry ORDER BY entry.sequence DESC LIMIT 1;
    NEW.sequence := coalesce(last.sequence, 0) + 1;
    NEW.previous := coalesce(last.hash, '');
    NEW.at := clock_timestamp();
    NEW.hash := encode(sha256(convert_to(
        '[' || NEW.sequence::text
        || ',"' || to_char(NEW.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '",'
        || public.ledger_json_text(NEW.actor) || ',' || public.ledger_json_text(NEW.kind) || ','
        || public.ledger_json_text(NEW.subject) || ',"' || NEW.digest || '","' || NEW.previous || '"]',
        'UTF8')), 'hex');
    RETURN NEW;
END
$$;
CREATE TRIGGER ledger_entry_chain BEFORE INSERT ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_chain();
"""

# Guards of the tables of the record: `kvaudit.server.ledger.guards` writes the triggers that call them.
GUARDS = """
CREATE FUNCTION record_passes(relation oid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = relation
$$;

-- No change at all.
CREATE FUNCTION record_insert_only() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF public.record_passes(TG_RELID) THEN
        IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% is part of the record: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

-- The columns named are as they were written for good.
CREATE FUNCTION record_fixed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after jsonb := to_jsonb(NEW);
    name text;
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    FOREACH name IN ARRAY TG_ARGV LOOP
        IF before -> name IS DISTINCT FROM after -> name THEN
            RAISE EXCEPTION '% is part of the record: its % never changes', TG_TABLE_NAME, name
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    END LOOP;
    RETURN NEW;
END
$$;

-- The columns named are set once.
CREATE FUNCTION record_once() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after jsonb := to_jsonb(NEW);
    name text;
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    FOREACH name IN ARRAY TG_ARGV LOOP
        IF before ->> name IS NOT NULL AND before -> name IS DISTINCT FROM after -> name THEN
            RAISE EXCEPTION '% is part of the record: its % was set and stays', TG_TABLE_NAME, name
                USING ERRCODE = 'insufficient_privilege';
        END IF;
    END LOOP;
    RETURN NEW;
END
$$;

-- Once the column named is set, the row stays as it is, but for the columns that the second argument lists.
CREATE FUNCTION record_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after jsonb := to_jsonb(NEW);
    still text[] := string_to_array(TG_ARGV[1], ',');
BEGIN
    IF public.record_passes(TG_RELID) THEN RETURN NEW; END IF;
    IF before ->> TG_ARGV[0] IS NOT NULL AND (before - still) IS DISTINCT FROM (after - still) THEN
        RAISE EXCEPTION '% is part of the record: this row has ended and stays as it is', TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
"""

BACKWARD = """
DROP TRIGGER ledger_entry_chain ON ledger_entry;
DROP FUNCTION ledger_chain();
DROP FUNCTION ledger_json_text(text);
DROP FUNCTION record_ended();
DROP FUNCTION record_once();
DROP FUNCTION record_fixed();
DROP FUNCTION record_insert_only();
DROP FUNCTION record_passes(oid);
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0004_told")]
    operations = [migrations.RunSQL(CHAIN + GUARDS, BACKWARD)]
