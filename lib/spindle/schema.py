"""Every table and column, as SQL DDL. This alone decides names and types; `tables` makes Delta tables of it.

Timestamps are UTC; `_s`, `_ms`, `_bytes` are units; hashes are lower-case hex, keys and SimHashes signed 64 bit.
The journal (one JSON object a line) uses the columns of `fetches` and `robots` under the same names, so that the
second step of fetch is a read with a schema. No column has a name that Delta reserves (`path`, `_metadata`).
"""

from __future__ import annotations

#: Version of this layout, stored in the warehouse's marker; another version is refused with a way out.
FORMAT_VERSION = 1

TABLES: dict[str, str] = {
    "urls": """
        url_key BIGINT NOT NULL, bucket INT NOT NULL, kind STRING NOT NULL, url STRING NOT NULL, host STRING NOT NULL,
        domain STRING NOT NULL, depth INT NOT NULL, seed_priority DOUBLE, metadata MAP<STRING, STRING>,
        priority INT NOT NULL, score DOUBLE NOT NULL, status STRING NOT NULL, last_outcome STRING,
        discovered_at TIMESTAMP NOT NULL, last_fetch TIMESTAMP, next_fetch TIMESTAMP, fetch_interval_s BIGINT,
        fixed_interval_s BIGINT, http_status INT, etag STRING, last_modified STRING, last_change TIMESTAMP,
        content_hash STRING, simhash BIGINT, warc_file STRING, warc_offset BIGINT, warc_length BIGINT,
        record_date TIMESTAMP, redirect_to STRING, duplicate_of BIGINT, fetch_count INT NOT NULL,
        change_count INT NOT NULL, failure_count INT NOT NULL, failure_streak INT NOT NULL,
        unchanged_streak INT NOT NULL, rate_changes DOUBLE NOT NULL, rate_changed_s DOUBLE NOT NULL,
        rate_unchanged_s DOUBLE NOT NULL, inlink_bits BIGINT NOT NULL, inlinks INT NOT NULL, last_segment STRING""",
    "hosts": """
        host STRING NOT NULL, bucket INT NOT NULL, domain STRING NOT NULL, state STRING NOT NULL, ip STRING,
        crawl_delay_s DOUBLE, limit_delay_s DOUBLE, paused BOOLEAN, next_ok_at TIMESTAMP, backoff_level INT NOT NULL,
        backoff_until TIMESTAMP, failure_streak INT NOT NULL, day DATE, fetched_today INT NOT NULL, quality DOUBLE,
        mean_fetch_ms DOUBLE, outcomes MAP<STRING, BIGINT>, last_segment STRING""",
    "inbox": """
        id STRING NOT NULL, at TIMESTAMP NOT NULL, who STRING NOT NULL, what STRING NOT NULL, host STRING,
        url STRING, value STRING""",
    "robots": """
        origin STRING NOT NULL, since TIMESTAMP NOT NULL, until TIMESTAMP, host STRING NOT NULL, bucket INT NOT NULL,
        verdict STRING NOT NULL, http_status INT, error STRING, attempted_at TIMESTAMP NOT NULL,
        good_at TIMESTAMP, expires_at TIMESTAMP NOT NULL, unreachable_since TIMESTAMP, crawl_delay_s DOUBLE,
        sitemaps ARRAY<STRING>, body_hash STRING, body STRING, warc_file STRING, warc_offset BIGINT,
        warc_length BIGINT, last_segment STRING""",
    "segments": """
        seq BIGINT NOT NULL, segment STRING NOT NULL, state STRING NOT NULL, at TIMESTAMP NOT NULL,
        slice_i INT NOT NULL, slice_n INT NOT NULL, bucket_lo INT NOT NULL, bucket_hi INT NOT NULL,
        turn BIGINT NOT NULL, lease_until TIMESTAMP, holder STRING, pins STRING,
        counts MAP<STRING, BIGINT>""",
    "fetchlist": """
        segment STRING NOT NULL, task INT NOT NULL, position INT NOT NULL, url_key BIGINT NOT NULL,
        bucket INT NOT NULL, kind STRING NOT NULL, url STRING NOT NULL, host STRING NOT NULL, domain STRING NOT NULL,
        depth INT NOT NULL, priority INT NOT NULL, score DOUBLE NOT NULL, seed_priority DOUBLE, status STRING NOT NULL,
        last_outcome STRING, discovered_at TIMESTAMP, last_fetch TIMESTAMP, next_fetch TIMESTAMP,
        fetch_interval_s BIGINT, fixed_interval_s BIGINT, http_status INT, etag STRING, last_modified STRING,
        last_change TIMESTAMP, content_hash STRING, simhash BIGINT, warc_file STRING, warc_offset BIGINT,
        warc_length BIGINT, record_date TIMESTAMP, redirect_to STRING, duplicate_of BIGINT, fetch_count INT NOT NULL,
        change_count INT NOT NULL, failure_count INT NOT NULL, failure_streak INT NOT NULL,
        unchanged_streak INT NOT NULL, rate_changes DOUBLE NOT NULL, rate_changed_s DOUBLE NOT NULL,
        rate_unchanged_s DOUBLE NOT NULL, inlinks INT NOT NULL, ip STRING, ip_tasks INT""",
    "fetches": """
        segment STRING NOT NULL, url_key BIGINT NOT NULL, hop INT NOT NULL, via_key BIGINT, month STRING NOT NULL,
        bucket INT NOT NULL, url STRING NOT NULL, host STRING NOT NULL, kind STRING, depth INT, task INT NOT NULL,
        epoch INT NOT NULL, outcome STRING NOT NULL, http_status INT, redirect_to STRING, error STRING,
        started_at TIMESTAMP, ended_at TIMESTAMP, duration_ms DOUBLE, ttfb_ms DOUBLE, gap_ms DOUBLE, ip STRING,
        wire_bytes BIGINT, body_bytes BIGINT, truncated STRING, content_type STRING, content_hash STRING,
        etag STRING, last_modified STRING, retry_after_s DOUBLE, x_robots_tag STRING, crawl_delay_s DOUBLE,
        backoff_level INT, next_ok_at TIMESTAMP, warc_file STRING, warc_offset BIGINT, warc_length BIGINT""",
    "pages": """
        segment STRING NOT NULL, url_key BIGINT NOT NULL, parse_version INT NOT NULL, month STRING NOT NULL,
        bucket INT NOT NULL, url STRING NOT NULL, host STRING NOT NULL, kind STRING NOT NULL, title STRING,
        description STRING, language STRING, charset STRING, charset_source STRING, canonical STRING,
        noindex BOOLEAN, nofollow BOOLEAN, noarchive BOOLEAN, robots ARRAY<STRING>, published_at STRING,
        modified_at STRING, open_graph MAP<STRING, STRING>, schema_type STRING, text STRING, text_hash STRING,
        simhash BIGINT, word_count INT, needs_js BOOLEAN, links INT, links_cut INT, error STRING""",
    "links": """
        segment STRING NOT NULL, parse_version INT NOT NULL, src_key BIGINT NOT NULL, src_url STRING NOT NULL,
        src_host STRING NOT NULL, rel STRING NOT NULL, dst_key BIGINT NOT NULL, dst_bucket INT NOT NULL,
        dst_url STRING NOT NULL, dst_host STRING NOT NULL, dst_domain STRING NOT NULL, dst_kind STRING NOT NULL,
        anchor STRING, position STRING, nofollow BOOLEAN NOT NULL, depth INT NOT NULL, seed_priority DOUBLE,
        lastmod STRING""",
    "fingerprints": """
        key_range INT NOT NULL, key_table INT NOT NULL, value BIGINT NOT NULL, url_key BIGINT NOT NULL,
        gone BOOLEAN NOT NULL, seq BIGINT NOT NULL""",
    "copies": """
        url_key BIGINT NOT NULL, bucket INT NOT NULL, url STRING NOT NULL, canonical_key BIGINT,
        discovered_at TIMESTAMP NOT NULL, content_hash STRING, simhash BIGINT, scheme STRING NOT NULL,
        live BOOLEAN NOT NULL, cluster BIGINT, duplicate BOOLEAN NOT NULL, judged BOOLEAN NOT NULL,
        seq BIGINT NOT NULL""",
    "clusters": """
        cluster BIGINT NOT NULL, root BIGINT NOT NULL, preferred_key BIGINT NOT NULL, preferred_url STRING NOT NULL,
        size BIGINT NOT NULL, seq BIGINT NOT NULL""",
    "traps": """
        host STRING NOT NULL, bucket INT NOT NULL, form STRING NOT NULL, pages INT NOT NULL, copies INT NOT NULL,
        leaders ARRAY<BIGINT>, example STRING, first_at TIMESTAMP, last_at TIMESTAMP, last_segment STRING""",
    "seen": """
        bucket INT NOT NULL, filter BINARY, rows BIGINT NOT NULL, links_version BIGINT, copies_version BIGINT,
        price DOUBLE, priced_at TIMESTAMP""",
    "events": """
        segment STRING NOT NULL, sequence BIGINT NOT NULL, type STRING NOT NULL, at TIMESTAMP NOT NULL, url STRING,
        url_key BIGINT, status INT, content_hash STRING, blob_key STRING""",
    "metrics": """
        segment STRING NOT NULL, job STRING NOT NULL, attempt STRING NOT NULL, name STRING NOT NULL,
        value DOUBLE NOT NULL, at TIMESTAMP NOT NULL""",
}

#: Columns of `links` that all links of a page have in common.
LINK_SOURCE = ("segment", "parse_version", "src_key", "src_url", "src_host")

#: Hive-style partitions. `urls` by bucket so that a turn touches its slice only; the logs of pages by month.
PARTITIONS: dict[str, list[str]] = {"urls": ["bucket"], "fetches": ["month"], "pages": ["month"]}

#: Tables of a segment's rows that lie in the partition of its month.
BY_MONTH = frozenset({"fetches", "pages"})

#: Tables whose rows change in place; deletion vectors keep a MERGE from rewriting whole files.
DELETION_VECTORS = frozenset({"urls", "hosts"})


def kinds(table: str) -> dict[str, str]:
    """A table's columns and their types in Spark's words."""
    split = (ddl.replace(" NOT NULL", "").partition(" ") for ddl in field_ddl(table))
    return {name: kind for name, _, kind in split}


def field_ddl(table: str) -> list[str]:
    """A table's columns as `name TYPE [NOT NULL]`, in order."""
    depth, fields, start = 0, [], 0
    text = TABLES[table] + ","
    for place, char in enumerate(text):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and depth == 0:
            fields.append(" ".join(text[start:place].split()))
            start = place + 1
    return fields


def columns(table: str) -> list[str]:
    """Column names of a table, in order."""
    return [field.split()[0] for field in field_ddl(table)]


#: A row of `urls` that was never fetched: column -> SQL. What discovery knows (key, url, depth, ...) comes on top.
NEW_URL: dict[str, str] = {
    "kind": "'page'",
    "depth": "0",
    "seed_priority": "CAST(NULL AS DOUBLE)",
    "metadata": "CAST(NULL AS MAP<STRING, STRING>)",
    "status": "'new'",
    "fixed_interval_s": "CAST(NULL AS BIGINT)",
    **dict.fromkeys(("fetch_count", "change_count", "failure_count", "failure_streak", "unchanged_streak"), "0"),
    **dict.fromkeys(("rate_changes", "rate_changed_s", "rate_unchanged_s"), "0D"),
    "inlink_bits": "0L",
    "inlinks": "0",
}
