-- Which pages are copies of which?
-- One row a copy; `original` is the first copy that was known, which names the cluster.
CREATE OR REPLACE TEMPORARY VIEW duplicates AS
SELECT
  d.duplicate_of AS cluster,
  o.url AS original,
  d.url AS copy,
  d.host,
  d.content_hash
FROM urls d
LEFT JOIN urls o ON o.url_key = d.duplicate_of
WHERE d.duplicate_of IS NOT NULL
ORDER BY original, copy;

SELECT * FROM duplicates;
