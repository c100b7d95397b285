-- Which pages does no page link to?
-- Known from seeds, sitemaps or feeds only.
CREATE OR REPLACE TEMPORARY VIEW orphans AS
SELECT u.url, u.host, u.depth, u.status, u.discovered_at
FROM urls u
LEFT ANTI JOIN (
  SELECT dst_key FROM links WHERE rel NOT IN ('sitemap', 'feed', 'redirect')
) l ON l.dst_key = u.url_key
WHERE u.kind = 'page'
ORDER BY u.url;

SELECT * FROM orphans;
