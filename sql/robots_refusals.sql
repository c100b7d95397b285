-- Which hosts refuse us by robots.txt, and how much of them?
-- `denied` by a rule, `unreachable` while robots.txt cannot be had.
CREATE OR REPLACE TEMPORARY VIEW robots_refusals AS
SELECT
  f.host,
  count_if(f.outcome = 'denied') AS denied,
  count_if(f.outcome = 'robots_unreachable') AS unreachable,
  max(r.verdict) AS verdict,
  max(r.http_status) AS robots_status,
  max(r.crawl_delay_s) AS crawl_delay_s,
  min_by(f.url, f.url) AS example
FROM fetches f
LEFT JOIN robots r ON r.host = f.host AND r.until IS NULL
WHERE f.outcome IN ('denied', 'robots_unreachable')
GROUP BY f.host
ORDER BY denied + unreachable DESC, f.host;

SELECT * FROM robots_refusals;
