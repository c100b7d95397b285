-- Where do redirects lead, and what is known of their targets?
-- The latest answer of each URL that redirects.
CREATE OR REPLACE TEMPORARY VIEW redirects AS
SELECT
  u.url,
  u.http_status,
  u.redirect_to,
  t.status AS target_status,
  u.last_fetch
FROM urls u
LEFT JOIN urls t ON t.url = u.redirect_to
WHERE u.status = 'redirected'
ORDER BY u.url;

SELECT * FROM redirects;
