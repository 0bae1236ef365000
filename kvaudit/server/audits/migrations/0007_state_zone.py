"""Lengths that a fail of `pool` endangered, kept with its interval: out of the results that it lasted over."""

from django.db import migrations, models

FILL = """
UPDATE audits_checkstate state SET zone_low = told.low, zone_high = told.high
FROM (
  SELECT held.id, min(zone.low) AS low, max(zone.high) AS high
  FROM audits_checkstate held
  JOIN audits_result result ON result.deployment_id = held.deployment_id AND result.check_id = 'pool'
    AND result.verdict = 'fail'
    AND (result.id = held.result_id OR result.observed_at >= held.since
      AND (result.observed_at <= held.last_confirmed OR result.observed_at < held.closed_at))
  CROSS JOIN LATERAL (
    SELECT result.measures -> 'danger_zone' ->> 0 AS low, result.measures -> 'danger_zone' ->> 1 AS high
  ) AS written
  CROSS JOIN LATERAL (
    SELECT CASE WHEN written.low ~ '^[0-9]{1,15}$' THEN written.low::bigint END AS low,
           CASE WHEN written.high ~ '^[0-9]{1,15}$' THEN written.high::bigint END AS high
  ) AS zone
  WHERE held.check_id = 'pool' AND held.verdict = 'fail' AND held.node_id IS NULL AND zone.low < zone.high
    AND CASE WHEN jsonb_typeof(result.measures -> 'danger_zone') = 'array'
      THEN jsonb_array_length(result.measures -> 'danger_zone') = 2 END
  GROUP BY held.id
) AS told
WHERE state.id = told.id
"""


class Migration(migrations.Migration):
    dependencies = [("audits", "0006_result_said")]

    operations = [
        migrations.AddField(
            model_name="checkstate", name="zone_low", field=models.BigIntegerField(blank=True, null=True)
        ),
        migrations.AddField(
            model_name="checkstate", name="zone_high", field=models.BigIntegerField(blank=True, null=True)
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="checkstate",
            constraint=models.CheckConstraint(
                condition=models.Q(zone_low=None, zone_high=None)
                | models.Q(zone_high__gt=models.F("zone_low")),
                name="audits_state_zone_has_lengths",
            ),
        ),
    ]
