"""parse-one: what a person is shown of a file; nothing is fetched here (`test_fetcher_tryout` has that)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spindle.cli import main

PAGE = """<html lang="de"><title>Ein Titel</title><meta name="robots" content="noarchive">
<nav><a href="/n">Nav</a></nav>
<p>Text <a href="x?utm_source=a&b=1" rel="nofollow">mit\x1b[2J Link</a><a href="mailto:me">m</a>"""
URLSET = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://h.test/one</loc>
<lastmod>2026-11-29</lastmod></url><url><loc>ftp://h.test/two</loc></url></urlset>"""


def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, *words: str) -> tuple[int, list[str], str]:
    file = tmp_path / "file"
    file.write_text(body)
    code = main(["parse-one", str(file), "--url", "http://h.test/d/", *words])
    out, err = capsys.readouterr()
    return code, [" ".join(line.split()) for line in out.splitlines()], err


def test_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = shown(tmp_path, capsys, PAGE)
    assert code == 0
    for told in (
        "title Ein Titel",
        "language de",
        "noarchive true",
        'robots ["meta:noarchive"]',
        'rejected {"scheme": 1}',
    ):
        assert told in lines
    assert lines[-2:] == ["a navigation http://h.test/n Nav", "a content nofollow http://h.test/d/x?b=1 mit [2J Link"]


def test_settings_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = ["--set", "parse.meta_robots=false", "--set", 'url.tracking_params=["b"]', "--content-type", "text/html"]
    _, lines, _ = shown(tmp_path, capsys, PAGE, *rules)
    assert "noarchive false" in lines and lines[-1].startswith("a content nofollow http://h.test/d/x?utm_source=a")


def test_a_sitemap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = shown(tmp_path, capsys, URLSET, "--kind", "sitemap")
    assert (code, lines[0], lines[-1]) == (0, "kind urlset", "2026-11-29 http://h.test/one")
    assert 'rejected {"scheme": 1}' in lines


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "sitemap"], "not a sitemap or feed (no_urls)"),
        (["--url", "ftp://h.test/"], "ftp://h.test/: not a URL that Spindle takes (scheme"),
        (["--set", "parse.nonsense=1"], "parse.nonsense"),
    ],
)
def test_what_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    code, lines, err = shown(tmp_path, capsys, "words", *words)
    assert (code, lines) == (2, []) and says in err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse-one", "/no/such/file"]) == 2
    assert capsys.readouterr().err == "spindle parse-one: /no/such/file: No such file or directory\n"
