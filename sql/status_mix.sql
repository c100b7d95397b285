-- What came back, day by day (UTC)?
-- One row a day and outcome.
CREATE OR REPLACE TEMPORARY VIEW status_mix AS
SELECT
  CAST(started_at AS DATE) AS day,
  outcome,
  count(*) AS fetches,
  round(100 * count(*) / sum(count(*)) OVER (PARTITION BY CAST(started_at AS DATE)), 1) AS percent
FROM fetches
WHERE started_at IS NOT NULL
GROUP BY CAST(started_at AS DATE), outcome
ORDER BY day, fetches DESC, outcome;

SELECT * FROM status_mix;
