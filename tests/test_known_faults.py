"""Faults that other crawlers had, one by one, and the tests that keep them out of this one: fetch and robots.txt.

The reports stand in `known_faults.md` of the shared cases, each under its main source. A report without a test here,
and a test that is named here and not there, fail.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cases import shared_file

TESTS = Path(__file__).parent

FETCH = {
    "aio-libs/aiohttp#11740": "test_hostile_web, test_every_hostile_host_in_one_task_costs_its_own_url_only",
    "aio-libs/aiohttp#8248": "test_bombs_end_at_the_bound_and_cost_no_more,"
    " test_bombs_and_codings_that_cannot_be_undone, test_memory_stays_near_the_cap_however_much_is_sent",
    "aio-libs/aiohttp#10047": "test_a_redirect_target_of_raw_bytes_is_escaped_as_it_stands",
    "aio-libs/aiohttp#6626": "test_the_url_goes_out_byte_for_byte, test_a_redirect_between_spellings_ends",
    "aio-libs/aiohttp#10790": "test_no_request_is_repeated_behind_our_back,"
    " test_a_connection_found_closed_costs_the_url_nothing_and_the_site_a_gap",
    "aio-libs/aiohttp#3026": "test_bodies_that_are_not_whole",
    "aio-libs/aiohttp#13364": "test_whole_bodies, test_compressed_bytes_are_never_passed_on_as_text",
    "aio-libs/aiohttp#7494": "test_hostile_web, test_statuses_become_outcomes",
    "aio-libs/aiohttp#3684": "test_the_cache_is_bounded,"
    " test_a_name_server_that_never_answers_costs_only_its_own_names,"
    " test_answers_and_failures_are_remembered_for_their_time",
    "aio-libs/aiohttp#2683": "test_cookies_are_neither_kept_nor_sent",
    "apache/nutch#369": "test_http_https_and_ports_of_a_host_count_together",
    "apache/nutch#729": "test_what_is_known_of_a_host_outlives_the_batches_its_urls_come_in,"
    " test_a_queue_that_ran_empty_does_not_forget_its_host",
    "apache/nutch#853": "test_throttling_slows_down_and_ends, test_a_host_that_fails_n_times_in_a_row_is_left_alone",
    "apify/crawlee-python#1995": "test_retry_after, test_retry_after_as_a_date,"
    " test_retry_after_beyond_the_cap_parks_the_host",
    "apache/spark#33273": "test_one_poison_url_costs_one_row",
    "apache/spark#49843": "test_a_stuck_worker_is_ended_by_its_watchdog",
    "apache/spark#8833": "test_the_server_saw_a_polite_crawler, test_a_finished_task_is_read_and_not_fetched_again",
    "apache/spark#50080": "test_many_large_bodies_share_few_places, test_urls_come_one_by_one_after_hosts_and_robots",
    "apache/spark#50531": "test_any_answer_makes_a_row_that_fits, test_any_outcome_without_an_answer_does_too",
    "ray-project/ray#47734": "test_two_tasks_one_after_the_other_in_one_process",
}
ROBOTS = {
    "scrapy/scrapy#6195": "test_the_first_group_is_found_in_any_encoding, test_bytes_of_robots_survive_as_text",
    "scrapy/protego#65": "test_group, test_product_token, test_our_own_header_names_our_own_token",
    "D4Vinci/Scrapling#437": "test_unreachable_robots_forbid_everything_of_their_host_and_nothing_else,"
    " test_robots_that_come_back_are_obeyed_and_nothing_was_fetched_before",
    "apache/nutch#779": "test_robots_redirects, test_a_robots_loop_ends,"
    " test_a_robots_redirect_to_a_host_of_the_task_obeys_that_hosts_gap",
    "scrapy/protego#47": "test_a_hostile_file_ends_with_the_right_answer, test_match",
    "scrapy/protego#80": "test_crawl_delay_value, test_budget",
    "ropensci/robotstxt#48": "test_crawl_delay_group, test_a_stray_delay_does_not_spoil_the_rules_below_it",
    "LAW-Unimi/BUbiNG#17": "test_a_robots_file_of_100_mb_is_read_to_its_bound,"
    " test_500_kib_count_and_the_cut_falls_on_a_line_end, test_an_html_page_holds_no_rules,"
    " test_no_octets_no_agent_and_no_url_raise",
}


@pytest.mark.parametrize(("group", "kept_out"), [("C. Fetch", FETCH), ("D. robots.txt", ROBOTS)])
def test_every_report_of_the_group_has_its_tests(group: str, kept_out: dict[str, str]) -> None:
    text = shared_file("known_faults.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {group}\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (?:\[!\] )?([\w.-]+/[\w.-]+#\d+)", section, re.MULTILINE) == list(kept_out)


def test_the_tests_are_there() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.glob("test_*.py")]
    there = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    named = {name for kept_out in (FETCH, ROBOTS) for names in kept_out.values() for name in names.split(", ")}
    assert named - there == set()
