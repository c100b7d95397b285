-- How is the crawl as a whole: how many URLs, how many are due, what was fetched, what did it weigh?
-- One row.
CREATE OR REPLACE TEMPORARY VIEW crawl_overview AS
SELECT
  (SELECT count(*) FROM urls) AS urls,
  (SELECT count_if(next_fetch IS NULL OR next_fetch <= now()) FROM urls WHERE status NOT IN ('dead')) AS due,
  (SELECT count(*) FROM hosts) AS hosts,
  (SELECT count(DISTINCT segment) FROM segments) AS segments,
  count(*) AS fetches,
  count_if(outcome IN ('ok', 'not_modified')) AS good,
  round(
    100 * count_if(outcome IN ('ok', 'not_modified')) / nullif(count_if(outcome <> 'not_reached'), 0), 1
  ) AS good_percent,
  count_if(outcome = 'throttled') AS throttled,
  coalesce(sum(wire_bytes), 0) AS wire_bytes,
  min(started_at) AS first_fetch,
  max(ended_at) AS last_fetch
FROM fetches;

SELECT * FROM crawl_overview;
