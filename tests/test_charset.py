"""The WHATWG rules for a body's encoding, on other projects' cases, and what the wild does to them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import jsonl
from spindle import charset

#: Cases that we answer otherwise, each with its reason. All are marked as disputed in the data.
EXCEPTIONS = {
    "cs-w3lib-header-none-03": 'an unclosed quote runs to the end (MIME Sniffing 4.4), as in browsers: charset="utf-8',
}


@pytest.mark.parametrize("case", jsonl("charset.jsonl"), ids=lambda case: case["id"])
def test_case(case):
    body, header = base64.b64decode(case["body_b64"]), case["content_type_header"]
    if case["expected_charset"] is None:  # the header declares nothing
        believed = charset.header_charset(header) is not None
        assert believed == (case["id"] in EXCEPTIONS)
    else:
        assert case["id"] not in EXCEPTIONS
        assert charset.detect(body, header) == case["expected_charset"]


def test_every_exception_is_a_disputed_case():
    assert {case["id"] for case in jsonl("charset.jsonl") if case.get("disputed")} >= EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("text/html; charset=utf-8,charset=utf-8", "utf-8"),  # two headers joined, the second without a type
        ("text/html; charset=utf-99", None),  # no such label
        ('text/html; charset=""', None),
        ("text/html; charset=none", None),
        ("text/html; charset=zip", None),  # a Python codec, but no label of the web
        ("text/html; charset=idna", None),
        ("text/html; charset=koi8-r; charset=big5", "koi8-r"),  # the first parameter counts
        ("text/html; charset=koi8-r, text/html", "koi8-r"),  # same type, charset inherited (Fetch 3.5)
        ("text/html; charset=koi8-r, text/plain", None),  # another type inherits nothing
        ('text/html; x="a;charset=koi8-r"; charset=big5', "big5"),  # a semicolon inside quotes
        ("text/html; charset=iso-2022-kr", "replacement"),  # unsafe encodings decode to nothing
        ("charset=utf-8", None),  # no media type
        (";;;", None),
    ],
)
def test_header(header, name):
    assert charset.header_charset(header) == name


def test_a_byte_order_mark_beats_the_header_and_is_no_text():
    body = b"\xef\xbb\xbf" + "Привет".encode()
    assert charset.decode(body, "text/html; charset=windows-1251") == ("Привет", "utf-8", "bom")
    assert charset.decode("\ufeffhi".encode("utf-16-le"), None) == ("hi", "utf-16le", "bom")


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        (b"plain ascii", None, ("windows-1252", "default")),
        ("naïve".encode(), None, ("utf-8", "detected")),
        ("naïve é"[:-1].encode() + b"\xc3", None, ("utf-8", "detected")),  # cut in the middle of the last letter
        (b"<meta charset=utf-99>" + "naïve".encode(), None, ("utf-8", "detected")),  # an unknown label declares nothing
        (b'<?xml version="1.0" encoding="koi8-r"?><html/>', None, ("koi8-r", "meta")),
        (b'<?xml version="1.0"?><a/>', "application/xml", ("utf-8", "default")),  # XML 1.0 4.3.3
        (b"<meta charset=koi8-r>", "application/xhtml+xml", ("utf-8", "default")),  # no meta in XML
        (b"x" * 1100 + b"<meta charset=koi8-r>", None, ("koi8-r", "meta")),  # a browser restarts with it
        (b"x" * 1100 + b"<script>'<meta charset=koi8-r>'</script>", None, ("windows-1252", "default")),
        (b"<meta charset", None, ("windows-1252", "default")),
        (b"", None, ("windows-1252", "default")),
    ],
)
def test_undeclared_or_declared_late(body, header, expected):
    assert charset.detect_source(body, header) == expected


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Привет, мир! Эта страница написана по-русски и нигде не говорит, в какой кодировке.", "windows-1251"),
        ("Привет, мир! Эта страница написана по-русски и нигде не говорит, в какой кодировке.", "koi8-r"),
        ("このページは日本語で書かれていますが、文字コードはどこにも書かれていません。", "shift_jis"),
        ("このページは日本語で書かれていますが、文字コードはどこにも書かれていません。", "euc-jp"),
        ("이 페이지는 한국어로 작성되었지만 문자 집합은 어디에도 적혀 있지 않습니다.", "euc-kr"),
        ("หน้านี้เขียนเป็นภาษาไทย แต่ไม่ได้บอกว่าใช้รหัสอักขระใด", "windows-874"),
        ("Diese Seite ist auf Deutsch geschrieben, über größere Äpfel und süße Öfen für müde Füße.", "windows-1252"),
    ],
)
def test_what_the_bytes_look_like(text, encoding):
    body = f"<html><title>x</title><p>{text}</p><p>{text}</p>".encode({"windows-874": "cp874"}.get(encoding, encoding))
    decoded = charset.decode(body, None)
    assert (decoded.name, decoded.source) == (encoding, "detected")
    assert text in decoded.text


def test_the_replacement_encoding_smuggles_nothing():
    assert charset.decode(b"~{<script>~}", "text/html; charset=hz-gb-2312") == ("\ufffd", "replacement", "header")


@settings(deadline=None)
@given(st.binary(max_size=300), st.none() | st.text(max_size=60))
def test_anything_decodes(body, header):
    decoded = charset.decode(body, header)
    decoded.text.encode()  # no lone surrogates
    assert charset.detect(body, header) == decoded.name


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"<meta ", b"charset=", b"'", b'"', b"utf-8", b">", b"<!--", b"-->", b"<a ", b"=", b"/", b"\0"]
        )
    )
)
def test_any_prescan_ends(parts):
    charset.detect(b"".join(parts) * 40, None)
