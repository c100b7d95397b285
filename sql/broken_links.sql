-- Which links lead nowhere, and which pages carry them?
-- Targets that were gone, not found, or dead when last tried.
CREATE OR REPLACE TEMPORARY VIEW broken_links AS
SELECT
  l.src_url AS source,
  l.anchor,
  u.url AS target,
  u.last_outcome,
  u.http_status,
  u.failure_streak
FROM links l
JOIN urls u ON u.url_key = l.dst_key
WHERE u.status IN ('gone', 'dead') OR u.last_outcome IN ('not_found', 'gone')
ORDER BY target, source;

SELECT * FROM broken_links;
