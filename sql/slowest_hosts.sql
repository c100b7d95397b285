-- Which hosts cost the crawl the most time?
-- Time in requests and in the gaps that politeness asks for.
CREATE OR REPLACE TEMPORARY VIEW slowest_hosts AS
SELECT
  host,
  count(*) AS requests,
  round(avg(duration_ms)) AS mean_ms,
  round(percentile_approx(duration_ms, 0.95)) AS p95_ms,
  round(avg(ttfb_ms)) AS mean_ttfb_ms,
  round((sum(duration_ms) + coalesce(sum(gap_ms), 0)) / 1000, 1) AS busy_s
FROM fetches
WHERE started_at IS NOT NULL
GROUP BY host
ORDER BY busy_s DESC, host;

SELECT * FROM slowest_hosts;
