-- How does each host fare: what was asked of it, what came back, how is it treated?
-- Hosts with the most requests first.
CREATE OR REPLACE TEMPORARY VIEW host_report AS
SELECT
  coalesce(h.host, f.host) AS host,
  h.state,
  coalesce(f.requests, 0) AS requests,
  coalesce(f.good, 0) AS good,
  coalesce(f.throttled, 0) AS throttled,
  coalesce(f.errors, 0) AS errors,
  f.wire_bytes,
  f.mean_ms,
  f.min_gap_ms,
  h.crawl_delay_s,
  h.limit_delay_s,
  h.backoff_until,
  h.quality
FROM hosts h
FULL JOIN (
  SELECT
    host,
    count_if(started_at IS NOT NULL) AS requests,
    count_if(outcome IN ('ok', 'not_modified')) AS good,
    count_if(outcome = 'throttled') AS throttled,
    count_if(
      outcome IN ('server_error', 'timeout', 'dns_error', 'tls_error', 'connect_error', 'protocol_error')
    ) AS errors,
    sum(wire_bytes) AS wire_bytes,
    round(avg(duration_ms), 1) AS mean_ms,
    round(min(gap_ms)) AS min_gap_ms
  FROM fetches
  GROUP BY host
) f ON f.host = h.host
ORDER BY requests DESC, host;

SELECT * FROM host_report;
