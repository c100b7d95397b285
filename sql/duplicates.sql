-- Which pages are copies of which?
-- One row a copy; `original` is the preferred copy of its cluster, as it is now.
CREATE OR REPLACE TEMPORARY VIEW duplicates AS
SELECT
  d.duplicate_of AS cluster,
  coalesce(c.preferred_url, o.url) AS original,
  d.url AS copy,
  d.host,
  d.content_hash
FROM urls d
LEFT JOIN clusters c ON c.cluster = d.duplicate_of
LEFT JOIN urls o ON o.url_key = d.duplicate_of
WHERE d.duplicate_of IS NOT NULL
ORDER BY original, copy;

SELECT * FROM duplicates;
