-- What waits at each level of the frontier, and how long has the oldest due URL waited?
-- Level 1 is fetched first; waiting raises a URL level by level.
CREATE OR REPLACE TEMPORARY VIEW frontier AS
SELECT
  priority AS level,
  count(*) AS urls,
  count_if(fetch_count = 0 AND failure_count = 0) AS never_fetched,
  count_if(next_fetch IS NULL OR next_fetch <= now()) AS due,
  max(CASE WHEN next_fetch <= now() THEN unix_seconds(now()) - unix_seconds(next_fetch) END) AS longest_wait_s
FROM urls
GROUP BY priority
ORDER BY level;

SELECT * FROM frontier;
