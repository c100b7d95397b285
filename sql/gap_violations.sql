-- Was any host asked sooner than its delay allows? (There should be no row.)
-- The delay is the host's limit if an operator set one, else the pinned minimum (or that of the sheet that makes some
-- hosts faster); never less than its crawl-delay.
CREATE OR REPLACE TEMPORARY VIEW gap_violations AS
WITH allowed AS (
  SELECT
    f.segment,
    f.host,
    f.url,
    f.started_at,
    f.gap_ms,
    1000 * greatest(
      coalesce(
        h.limit_delay_s,
        least(
          CAST(get_json_object(s.pins, '$.settings.politeness.min_delay_s') AS DOUBLE),
          array_min(
            from_json(get_json_object(s.pins, '$.settings.scope.sheets'), 'ARRAY<STRUCT<delay_s: DOUBLE>>').delay_s
          )
        )
      ),
      coalesce(f.crawl_delay_s, 0)
    ) AS least_ms
  FROM fetches f
  JOIN segments s ON s.segment = f.segment AND s.state = 'opened'
  LEFT JOIN hosts h ON h.host = f.host
)
SELECT * FROM allowed WHERE gap_ms < least_ms ORDER BY started_at;

SELECT * FROM gap_violations;
