-- How old is what we hold, and how much of it is overdue?
-- Pages that were fetched at least once, by the age of their last fetch.
CREATE OR REPLACE TEMPORARY VIEW freshness AS
SELECT
  CASE
    WHEN age_s < 3600 THEN '1 under an hour'
    WHEN age_s < 86400 THEN '2 under a day'
    WHEN age_s < 604800 THEN '3 under a week'
    WHEN age_s < 2592000 THEN '4 under 30 days'
    ELSE '5 older'
  END AS age,
  count(*) AS urls,
  count_if(next_fetch <= now()) AS overdue,
  round(avg(fetch_interval_s)) AS mean_interval_s,
  round(avg(change_count / nullif(fetch_count, 0)), 3) AS changes_per_fetch
FROM (
  SELECT *, unix_seconds(now()) - unix_seconds(last_fetch) AS age_s
  FROM urls
  WHERE last_fetch IS NOT NULL AND status IN ('fetched', 'duplicate')
)
GROUP BY 1
ORDER BY age;

SELECT * FROM freshness;
