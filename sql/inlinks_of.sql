-- Who links to a page, and with which words?
-- Ask for one target: SELECT * FROM inlinks_of WHERE url = 'http://...'.
CREATE OR REPLACE TEMPORARY VIEW inlinks_of AS
SELECT
  l.dst_url AS url,
  l.src_url AS source,
  l.src_host AS source_host,
  l.anchor,
  l.rel,
  l.nofollow,
  l.segment
FROM links l
ORDER BY url, source;

SELECT * FROM inlinks_of;
