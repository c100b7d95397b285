"""The vocabularies and the reading of HTTP status codes, all of them."""

from __future__ import annotations

import pytest

from spindle.outcome import NETWORK_CLASS, Outcome, Status, of_status

DESIGN_STATUS = "new fetched redirected duplicate retry denied gone unsupported dead"
DESIGN_OUTCOME = """
    ok not_modified redirect denied not_found gone throttled server_error timeout dns_error tls_error connect_error
    protocol_error too_large bad_type blocked_address forbidden client_error robots_unreachable not_reached
"""


def test_vocabularies_are_those_of_the_design() -> None:
    assert {str(status) for status in Status} == set(DESIGN_STATUS.split())
    assert {str(outcome) for outcome in Outcome} == set(DESIGN_OUTCOME.split())


RANGES = [
    # first, last, outcome, why
    (100, 199, Outcome.PROTOCOL_ERROR, "interim answers are never the last one (RFC 9110 15.2)"),
    (200, 299, Outcome.OK, "204 and 206 too: the row says which"),
    (300, 300, Outcome.PROTOCOL_ERROR, "multiple choices: no target defined"),
    (301, 303, Outcome.REDIRECT, "RFC 9110 15.4.2 to 15.4.4"),
    (304, 304, Outcome.NOT_MODIFIED, "RFC 9110 15.4.5"),
    (305, 306, Outcome.PROTOCOL_ERROR, "use proxy (deprecated), unused"),
    (307, 308, Outcome.REDIRECT, "RFC 9110 15.4.8, 15.4.9"),
    (309, 399, Outcome.PROTOCOL_ERROR, "unassigned: no target defined"),
    (400, 400, Outcome.CLIENT_ERROR, "bad request"),
    (401, 401, Outcome.FORBIDDEN, "unauthorized"),
    (402, 402, Outcome.CLIENT_ERROR, "payment required"),
    (403, 403, Outcome.FORBIDDEN, "forbidden"),
    (404, 404, Outcome.NOT_FOUND, "not found"),
    (405, 409, Outcome.CLIENT_ERROR, "method, accept, proxy, timeout, conflict"),
    (410, 410, Outcome.GONE, "gone"),
    (411, 428, Outcome.CLIENT_ERROR, "421 and 425 among them"),
    (429, 429, Outcome.THROTTLED, "RFC 6585 4"),
    (430, 450, Outcome.CLIENT_ERROR, "431 among them"),
    (451, 451, Outcome.FORBIDDEN, "RFC 7725"),
    (452, 499, Outcome.CLIENT_ERROR, "unassigned"),
    (500, 502, Outcome.SERVER_ERROR, "the server's trouble"),
    (503, 503, Outcome.THROTTLED, "asks for less"),
    (504, 599, Outcome.SERVER_ERROR, "the server's trouble; 520 to 526 of a known CDN too"),
]


def test_the_ranges_cover_every_status_once() -> None:
    assert [n for first, last, _, _ in RANGES for n in range(first, last + 1)] == list(range(100, 600))


@pytest.mark.parametrize(("first", "last", "outcome", "why"), RANGES)
def test_of_status(first: int, last: int, outcome: Outcome, why: str) -> None:
    assert {of_status(n) for n in range(first, last + 1)} == {outcome}, why


@pytest.mark.parametrize("odd", [-1, 0, 1, 99, 600, 999, 10**9])
def test_what_is_no_status_is_a_protocol_error(odd: int) -> None:
    assert of_status(odd) == Outcome.PROTOCOL_ERROR


def test_network_class_is_what_could_be_our_own_fault() -> None:
    assert {Outcome.TIMEOUT, Outcome.DNS_ERROR, Outcome.TLS_ERROR, Outcome.CONNECT_ERROR} == NETWORK_CLASS
    assert not NETWORK_CLASS & {of_status(n) for n in range(100, 600)}
