"""What a user gets wrong, and what the place does to him: one sentence, the right exit code, nothing lost.

First what is refused before a JVM is started; then, on one small warehouse, what its state refuses; last the full disk
and Ctrl-C, as a real process sees them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from loopback import Site
from spindle import cli, schema, session, tables
from spindle.ledger import Ledger
from spindle.segments import State, latest
from spindle.store import open_store
from spindle.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTACT = ["--set", "agent.contact=https://crawler.test/", "--set", "network.hosts_file_only=true"]


class Told(NamedTuple):
    code: int
    out: str
    err: str


Spindle = Callable[..., Told]


@pytest.fixture
def spindle(capsys: pytest.CaptureFixture[str]) -> Spindle:
    """The command line in this process. What it says on standard error is never a stack trace."""

    def run(*words: object) -> Told:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        told = Told(code, *capsys.readouterr())
        assert not stack_trace(told.err), told.err
        return told

    return run


def stack_trace(text: str) -> bool:
    """Python's or Java's."""
    return "Traceback (most recent call last)" in text or re.search(r"^\s+at [\w.$]+\(", text, re.MULTILINE) is not None


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("a JVM was about to be started")

    monkeypatch.setattr(session, "_check_versions", refuse)


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder with everything that is not a warehouse, and seeds and settings of all sorts."""
    files = {
        "seeds.txt": "http://a.test/\n",
        "file": "",
        "folder/letter.txt": "",
        "newer/spindle.json": json.dumps({"format_version": schema.FORMAT_VERSION + 1, "buckets": 4}),
        "broken/spindle.json": '{"format_vers',
        "strange/spindle.json": "[1]",
        "good/spindle.json": json.dumps({"format_version": schema.FORMAT_VERSION, "buckets": 4}),
        "typo.toml": "[generate]\nlist_sise = 5\n",
        "section.toml": "[generat]\nlist_size = 5\n",
        "syntax.toml": "[generate\n",
        "impossible.toml": "[politeness]\nmin_delay_s = -1\n",
        "empty": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


NEWER = f"has format {schema.FORMAT_VERSION + 1}, this Spindle reads format {schema.FORMAT_VERSION}"
REFUSED_AT_ONCE = [
    # command (in the folder `places`), exit code, what is said
    ("inject --warehouse folder seeds.txt", 4, "not a warehouse (it holds letter.txt); choose another folder"),
    ("inject --warehouse file seeds.txt", 4, "a part of this path is a file"),
    ("inject --warehouse newer seeds.txt", 4, NEWER),
    ("inject --warehouse broken seeds.txt", 4, "spindle.json is damaged"),
    ("inject --warehouse gopher://x seeds.txt", 4, "gopher:// is not supported"),
    ("inject --warehouse new none.txt", 2, "seed list none.txt: No such file"),
    ("inject --warehouse new folder", 2, "seed list folder: Is a directory"),
    ("inject --warehouse new seeds.txt --now yesterday", 2, "--now 'yesterday': expected ISO 8601"),
    ("inject --warehouse new seeds.txt --now 0001-01-01T00:00+14:00", 2, "--now"),
    ("inject --warehouse new seeds.txt --now 0001-01-01", 2, "a year from 1970"),
    ("generate --warehouse none --segment s", 4, "none is not a warehouse (no spindle.json in it); make one"),
    ("generate --warehouse folder --segment s", 4, "folder is not a warehouse"),
    ("generate --warehouse file --segment s", 4, "a part of this path is a file"),
    ("generate --warehouse newer --segment s", 4, NEWER),
    ("generate --warehouse strange --segment s", 4, "damaged"),
    ("generate --warehouse good --segment s --now soon", 2, "expected ISO 8601"),
    ("generate --warehouse good --segment a/b", 2, "letters, digits and"),
    ("generate --warehouse good --segment s.3of2", 2, "slice 3 of 2 does not exist"),
    ("generate --warehouse good --segment s --set scope.deny=['regex:(']", 2, "scope.deny: 'regex:('"),
    ("generate --warehouse good --segment s --set network.hosts_file=none", 2, "cannot read none"),
    ("generate --warehouse good --segment s --set network.allow_addresses=['lan']", 2, "'lan' is not a network"),
    ("fetch --warehouse none --segment s", 4, "none is not a warehouse"),
    ("parse --warehouse newer --segment s", 4, NEWER),
    ("update --warehouse broken --segment s", 4, "damaged"),
    ("stats --warehouse folder", 4, "folder is not a warehouse"),
    ("sql --warehouse newer SELECT", 4, NEWER),
    ("url --warehouse good mailto:a@b.test", 2, "not a URL that Spindle takes"),
    ("generate --warehouse good --segment s --config none.toml", 2, "none.toml: No such file"),
    ("generate --warehouse good --segment s --config syntax.toml", 2, "syntax.toml: not valid TOML"),
    ("generate --warehouse good --segment s --config typo.toml", 2, "did you mean generate.list_size?"),
    ("generate --warehouse good --segment s --config section.toml", 2, "did you mean generate?"),
    (
        "generate --warehouse good --segment s --config impossible.toml",
        2,
        "politeness.min_delay_s = -1.0: must be at least 0",
    ),
    ("generate --warehouse good --segment s", 2, "agent.contact is empty"),  # what is pinned cannot be mended later
    ("crawl --warehouse new seeds.txt", 2, "agent.contact is empty"),
    ("crawl --warehouse new", 2, "give a seed list, or --demo"),
    ("crawl --warehouse new --demo seeds.txt", 2, "not both"),
    ("crawl --warehouse new seeds.txt --turns 0", 2, "--turns 0: at least 1"),
    ("crawl --warehouse folder seeds.txt --set agent.contact=a@b.test", 4, "it holds letter.txt"),
    ("crawl --warehouse new none.txt --set agent.contact=a@b.test", 2, "none.txt: No such file"),
]


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(("command", "code", "words"), REFUSED_AT_ONCE, ids=[row[0] for row in REFUSED_AT_ONCE])
def test_what_cannot_work_is_refused_before_a_jvm_is_started(
    command: str, code: int, words: str, places: Path, spindle: Spindle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places)
    before = sorted(places.rglob("*"))
    told = spindle(*command.split(" "))
    assert told.code == code, told.err
    assert words in told.err and told.err.startswith(f"spindle {command.split()[0]}: ")
    assert (told.err.count("\n"), told.out) == (1, ""), "one sentence"
    assert sorted(places.rglob("*")) == before, "nothing was made"


# --- seed lists

BAD = {
    "junk": "not_absolute",
    "ftp://a.test/x": "scheme",
    "mailto:me@a.test": "scheme",
    "http://": "",
    "http://a.test:99999/": "",
    "http://a.test/?x=1\tpriority=high": "priority 'high' is not a number",
    '{"url": "http://a.test/': "not valid JSON",
    "http://a.test/b/c/b/c/b/c/b/c/": "trap_repeated_segments: ",
    f"http://a.test/{'x' * 3000}": "",
    "http://no.test/": "out_of_scope: deny host:no.test",
}


class List(NamedTuple):
    text: bytes
    good: set[str]
    bad: dict[int, str]  # line number -> reason, or how it begins


def long_list() -> List:
    """A thousand URLs as people keep them: 1 % of them bad; blank lines, comments, doubles, Windows line ends."""
    lines, bad, faults = ["\ufeff# my seeds", ""], {}, iter(BAD.items())
    for n in range(1000):
        if n % 100 == 50:
            text, reason = next(faults)
            bad[len(lines) + 1] = reason
            lines.append(text)
        else:
            lines.append(f"http://h{n % 300}.test/{n}")
        lines += {7: ["", "   ", "# more"], 8: [f"HTTP://H{n % 300}.test:80/{n}#top"]}.get(n % 200, [])
    good = {f"http://h{n % 300}.test/{n}" for n in range(1000) if n % 100 != 50}
    return List("\r\n".join(lines).encode() + b"\r\n", good, bad)


def listed_faults(err: str) -> dict[int, str]:
    """Line number -> what was said of it."""
    return {int(n): text for n, text in re.findall(r"^  line (\d+): (.*)$", err, re.MULTILINE)}


def check_faults(err: str, seeds: List) -> None:
    told = listed_faults(err)
    assert set(told) == set(seeds.bad)
    assert all(told[line].startswith(reason) for line, reason in seeds.bad.items()), told


NO_TEST = ["--set", "scope.deny=['host:no.test']"]


def test_good_seeds_go_in_and_bad_ones_are_listed(spark: SparkSession, tmp_path: Path, spindle: Spindle) -> None:
    seeds, file = long_list(), tmp_path / "seeds.txt"
    file.write_bytes(seeds.text)
    told = spindle("inject", "--warehouse", tmp_path / "w", file, "--set", "warehouse.buckets=1", *NO_TEST)
    assert told.code == 0
    check_faults(told.err, seeds)
    assert f"seeds {len(seeds.good)}" in told.out and "bad_lines 10" in told.out
    assert f"inserted {len(seeds.good)}" in told.out
    urls = [row.url for row in tables.open_warehouse(spark, str(tmp_path / "w")).read("urls").select("url").collect()]
    assert Counter(urls) == Counter(seeds.good)


@pytest.mark.usefixtures("no_jvm")
def test_strict_puts_nothing_in(tmp_path: Path, spindle: Spindle) -> None:
    seeds, file = long_list(), tmp_path / "seeds.txt"
    file.write_bytes(seeds.text)
    told = spindle("inject", "--warehouse", tmp_path / "w", "--strict", file, *NO_TEST)
    assert (told.code, told.out) == (2, "")
    check_faults(told.err, seeds)
    assert told.err.splitlines()[-1] == "spindle inject: 10 bad lines, nothing injected (--strict)"
    assert not (tmp_path / "w").exists()


@pytest.mark.usefixtures("no_jvm")
def test_of_several_lists_the_bad_line_s_list_is_named(tmp_path: Path, spindle: Spindle) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("http://a.test/\n\nx y\n")
    second.write_bytes(b"\xff\xfe\x00\n#\n")
    told = spindle("inject", "--warehouse", tmp_path / "w", "--strict", first, second)
    assert told.code == 2
    assert f"  {first} line 3: not_absolute: 'x y'\n" in told.err
    assert f"  {second} line 1: not_absolute: " in told.err


# --- a warehouse whose state refuses


@pytest.fixture(scope="module")
def owned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse of two hosts whose whole range belongs to the segment `turn-a`, generated."""
    folder = tmp_path_factory.mktemp("owned")
    seeds, root = folder / "seeds.txt", str(folder / "w")
    seeds.write_text("http://a.test/\nhttp://b.test/\n")
    assert cli.main(["inject", "--warehouse", root, str(seeds), "--set", "warehouse.buckets=2"]) == 0
    assert cli.main(["generate", "--warehouse", root, "--segment", "turn-a", *CONTACT]) == 0
    return tables.open_warehouse(spark, root)


def ledger_lines(warehouse: Warehouse) -> int:
    return len(warehouse.ledger.entries())


REFUSED_BY_STATE = [
    ("fetch --segment none", 3, "segment none.1of1 does not exist in this warehouse; run generate first"),
    ("parse --segment none", 3, "segment none.1of1 does not exist"),
    ("parse --segment turn-a", 3, "segment turn-a.1of1 is generated: run fetch before this job"),
    ("update --segment turn-a", 3, "is generated: run fetch before"),
    ("generate --segment turn-b", 3, "belong to segment turn-a.1of1 (generated, held by "),
    ("generate --segment turn-b.2of2", 3, "buckets 1..1 belong to segment turn-a.1of1"),
    ("generate --segment turn-b.1of3", 2, "3 slices of 2 buckets; use at most 2 slices"),
    ("expire none", 3, "segment none.1of1 does not exist"),
]


@pytest.mark.parametrize(("command", "code", "words"), REFUSED_BY_STATE, ids=[row[0] for row in REFUSED_BY_STATE])
def test_the_state_of_a_warehouse_refuses(
    command: str, code: int, words: str, owned: Warehouse, spindle: Spindle
) -> None:
    before = ledger_lines(owned)
    takes_settings = CONTACT if "--segment" in command else ()
    told = spindle(*command.split(" "), "--warehouse", owned.store.root, *takes_settings)
    assert (told.code, told.out) == (code, ""), told.err
    assert words in told.err and told.err.count("\n") == 1
    assert ledger_lines(owned) == before


def test_the_holder_of_a_range_and_the_way_out_are_named(owned: Warehouse, spindle: Spindle) -> None:
    told = spindle("generate", "--warehouse", owned.store.root, "--segment", "turn-b", *CONTACT)
    holder = latest(owned.ledger.entries())["turn-a.1of1"].holder
    assert holder.endswith(f":{os.getpid()}") and f"held by {holder}" in told.err
    assert "`spindle expire turn-a.1of1`" in told.err


def test_seeds_wait_while_a_turn_owns_the_range(owned: Warehouse, spindle: Spindle, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("http://c.test/\n")
    told = spindle("inject", "--warehouse", owned.store.root, tmp_path / "more.txt")
    assert told.code == 3 and "belong to segment turn-a.1of1" in told.err
    assert owned.read("urls").count() == 2


def test_a_segment_that_exists_is_left_as_it_is(owned: Warehouse, spindle: Spindle) -> None:
    before, listed = ledger_lines(owned), owned.read("fetchlist").count()
    told = spindle("generate", "--warehouse", owned.store.root, "--segment", "turn-a", *CONTACT)
    assert (told.code, told.err) == (0, "")
    assert told.out == "generate turn-a.1of1: already generated; nothing to do\n"
    assert (ledger_lines(owned), owned.read("fetchlist").count()) == (before, listed) == (4, 2)


# --- real processes: a full disk, and Ctrl-C


def start(*words: object, mark: str = "") -> subprocess.Popen[str]:
    """The installed command in a process group of its own, as a shell would start it."""
    command = [Path(sys.executable).with_name("spindle"), *map(str, words)]
    environment = {**os.environ, "SPINDLE_QUICK": "1", "SPINDLE_TEST_MARK": mark}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, process_group=0
    )


def marked(mark: str) -> list[str]:
    """Commands of the processes that carry the mark in their environment, ours aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SPINDLE_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended meanwhile
    return found


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended early: {process.communicate()}"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        text = f"only root can mount a small disk: {made.stderr.decode().strip()}"
        pytest.fail(text) if os.environ.get("CI") == "true" else pytest.skip(text)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.heavy  # root
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_a_full_disk_is_one_sentence_and_nothing_is_lost(small_disk: Path, tmp_path: Path, spark: SparkSession) -> None:
    """The tables fit on the disk, twelve pages of 1 MB that no compression makes smaller do not."""
    pages = [f"/{n}" for n in range(12)]
    with Site() as site:
        site.page("/", links=pages)
        for page in pages:
            site.page(page, f"<title>{page}</title>".encode() + os.urandom(1 << 20))
        (tmp_path / "seeds.txt").write_text("".join(f"http://h.test{page}\n" for page in pages))
        settings = site.settings({"warehouse": {"buckets": 1}, "fetch": {"seal_interval_s": 1.0}})
        (tmp_path / "own.toml").write_text(toml(json.loads(settings.to_json())))
        command = ["crawl", tmp_path / "seeds.txt", "--warehouse", small_disk / "w", "--turns", "1"]
        command += ["--config", tmp_path / "own.toml"]

        first = start(*command)
        out, err = first.communicate(timeout=600)
        assert first.returncode == 4, err
        assert "the disk is full" in err.splitlines()[-1] and err.splitlines()[-1].startswith("spindle crawl: ")
        assert not stack_trace(err), err

        subprocess.run(["mount", "-o", "remount,size=80m", small_disk], check=True)
        second = start(*command)
        out, err = second.communicate(timeout=600)
        assert second.returncode == 0, err
        assert "going on with segment crawl-" in out
    fetches = tables.open_warehouse(spark, str(small_disk / "w")).read("fetches")
    fetched = fetches.filter("outcome = 'ok' AND warc_file IS NOT NULL").select("url").collect()
    assert Counter(row.url for row in fetched) == Counter(f"http://h.test{page}" for page in pages)


def toml(sections: dict[str, dict[str, object]]) -> str:
    """JSON's spelling of plain values is TOML's too."""
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines)


@pytest.mark.heavy  # a minute and a half
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_ctrl_c_in_a_fetch_ends_everything_and_the_same_command_goes_on(
    tmp_path: Path, spark: SparkSession, spindle: Spindle
) -> None:
    root, mark = tmp_path / "w", uuid.uuid4().hex
    command = ["crawl", "--demo", "--demo-hosts", "40", "--warehouse", root, "--turns", "1"]
    command += ["--set", "politeness.min_delay_s=5"]  # so that the fetch lasts, between robots.txt and the first pages
    log = tmp_path / "w-web" / "requests.jsonl"
    process = start(*command, mark=mark)
    try:
        wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") > 10, process, 400)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("spindle crawl: interrupted; nothing is lost, run the same command again")
    assert not stack_trace(err), err
    deadline = time.monotonic() + 30
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked(mark) == [], "the demo web, the JVM and its workers end with the command"

    ledger = Ledger(open_store(str(root)), 4)
    (left,) = [entry for entry in latest(ledger.entries()).values() if entry.state is not State.UPDATED]
    assert left.state is State.GENERATED

    told = spindle(*command)
    assert told.code == 0, told.err
    assert f"going on with segment {left.segment}, which an interrupted crawl left generated" in told.out
    assert {entry.state for entry in latest(ledger.entries()).values()} == {State.UPDATED}
    opened = tables.open_warehouse(spark, str(root))
    of_segment = f"segment = '{left.segment}'"
    listed = [row.url_key for row in opened.read("fetchlist").filter(of_segment).collect()]
    fetched = [row.url_key for row in opened.read("fetches").filter(f"{of_segment} AND hop = 0").collect()]
    assert Counter(fetched) == Counter(listed) and listed
