-- Which pages show their content only to a browser?
-- For a headless tier; Spindle itself runs no scripts.
CREATE OR REPLACE TEMPORARY VIEW needs_js AS
SELECT p.host, p.url, p.title, p.word_count, p.segment
FROM (
  SELECT *, row_number() OVER (PARTITION BY url_key, segment ORDER BY parse_version DESC) AS newest_rules FROM pages
) p
JOIN urls u ON u.url_key = p.url_key AND u.last_segment = p.segment
WHERE p.needs_js AND p.newest_rules = 1
ORDER BY p.host, p.url;

SELECT * FROM needs_js;
