"""The documents name only what exists, and leave out nothing that a reader would look for in them.

A rule finds names in a document by their form (`make x`, `spindle x`, `section.key`, `table.column`, test names, links)
and asks the code. Only what stands as code is read as a name. The SQL is run, by the one test here that needs Spark.
"""

from __future__ import annotations

import os
import re
import subprocess
import typing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spindle import config, errors, robots, runner, schema, segments, tables
from spindle.cli import COMMANDS
from spindle.outcome import Outcome, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(file.relative_to(ROOT).as_posix() for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
#: Options that the documents name and that are not ours.
FOREIGN_OPTIONS = {"--archives", "--jars", "--master", "--packages", "--properties-file", "--py-files", "--add-modules"}
FILE_ENDINGS = {"py", "txt", "sql", "toml", "md"}


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def code_in(text: str) -> str:
    """What stands as code: fenced blocks and spans, one a line, line ends inside a span folded."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*blocks, *(" ".join(span.split()) for span in spans)])


def make_targets(code: str) -> set[str]:
    return set(re.findall(r"(?<![\w./-])make(?: [A-Z_]+=\S+)* ([a-z][a-z-]*)", code))


def spindle_commands(code: str) -> set[str]:
    return set(re.findall(r"(?<![\w./-])spindle ([a-z][a-z-]*)", code))


def dotted_names(code: str) -> set[tuple[str, str]]:
    return set(re.findall(r"(?<![\w./-])([a-z]+)\.([a-z_]+)\b(?![./(])", code))


def table_rows(text: str) -> list[list[str]]:
    """Cells of the Markdown tables, heads and rules apart."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def words_in(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", cell))


# --- names in the documents


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_and_commands_exist(document: str) -> None:
    code = code_in(text_of(document))
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), re.MULTILINE))
    assert make_targets(code) - targets == set()
    assert spindle_commands(code) - set(COMMANDS) == set()


def test_every_command_is_in_some_document() -> None:
    named = {word for document in DOCUMENTS for word in re.findall(r"[a-z][a-z-]*", code_in(text_of(document)))}
    assert set(COMMANDS) - named == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_exist(document: str) -> None:
    sources = [*ROOT.glob("lib/spindle/**/*.py"), *ROOT.glob("jobs/*.py"), *ROOT.glob("tools/*.py")]
    known = {word for file in sources for word in re.findall(r'"(--[a-z][a-z-]*)"', file.read_text(encoding="utf-8"))}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code_in(text_of(document))))
    assert named - known - FOREIGN_OPTIONS == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_settings_and_columns_exist(document: str) -> None:
    sections = {name: set(kind.__dataclass_fields__) for name, kind in typing.get_type_hints(config.Settings).items()}
    known = {name: set(schema.columns(name)) for name in schema.TABLES}
    for name, keys in sections.items():
        known[name] = known.get(name, set()) | keys
    named = {(name, key) for name, key in dotted_names(code_in(text_of(document))) if name in known}
    wrong = {f"{name}.{key}" for name, key in named if key not in known[name] | FILE_ENDINGS}
    assert wrong == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_tests_exist(document: str) -> None:
    code = code_in(text_of(document))
    sources = {file.name: file.read_text(encoding="utf-8") for file in ROOT.glob("tests/*.py")}
    assert set(re.findall(r"\btests/(\w+\.py)", code)) - set(sources) == set()
    functions = {name for text in sources.values() for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert set(re.findall(r"(?<![\w/])(test_\w+)(?!\w*\.py)\b", code)) - functions == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_resolve(document: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", text_of(document))
    here = (ROOT / document).parent
    assert [target for target in targets if "://" not in target and not (here / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_folders_exist(document: str) -> None:
    """Paths that begin with a folder of the project. `make` makes dist/."""
    folders = "bench|conf|docs|jobs|lib|tests|tools"
    named = re.findall(rf"(?<![\w./~-])((?:{folders})/[\w./-]*\w)", code_in(text_of(document)))
    named = [name for name in named if "/X." not in name]
    assert [name for name in named if not (ROOT / name).exists()] == []


# --- what must be in them


def test_tables_md_has_every_table_and_column_with_its_type() -> None:
    found = {}
    for section in text_of("docs/tables.md").split("\n## ")[1:]:
        name = section.partition("\n")[0].strip()
        found[name] = [cells for cells in table_rows(section) if cells[0] != "column"]
    assert list(found) == list(schema.TABLES)
    for table, rows in found.items():
        ddl = [
            f"{column.strip('`')} {kind.removesuffix('?').upper()}{'' if kind.endswith('?') else ' NOT NULL'}"
            for column, kind, _ in rows
        ]
        assert ddl == schema.field_ddl(table), table
        assert [column for column, _, meaning in rows if not meaning] == [], table


@pytest.mark.parametrize(
    ("table", "column", "vocabulary"),
    [
        ("urls", "status", Status),
        ("fetches", "outcome", Outcome),
        ("segments", "state", segments.State),
        ("robots", "verdict", robots.Verdict),
    ],
)
def test_closed_vocabularies_are_whole(table: str, column: str, vocabulary: type[StrEnum]) -> None:
    section = text_of("docs/tables.md").split(f"\n## {table}\n")[1].split("\n## ")[0]
    meaning = next(cells[2] for cells in table_rows(section) if cells[0] == f"`{column}`")
    assert words_in(meaning) == {member.value for member in vocabulary}


def test_operations_md_has_every_exit_code_with_its_errors() -> None:
    kinds = [errors.SpindleError, *errors.SpindleError.__subclasses__()]
    section = text_of("docs/operations.md").split("## Exit codes")[1].split("\n## ")[0]
    rows = {code: "" for code, *_ in table_rows(section) if code.isdecimal()}
    for code, *cells in table_rows(section):
        if code in rows:
            rows[code] += " ".join(cells)
    assert set(rows) == {"0", "1", str(runner.INTERRUPTED), *(str(kind.exit_code) for kind in kinds)}
    for kind in kinds:
        if kind.__module__ == errors.__name__:
            assert f"`{kind.__name__}`" in rows[str(kind.exit_code)], kind


def test_architecture_md_has_every_module_in_a_ring() -> None:
    section = text_of("docs/architecture.md").split("## Rings")[1].split("\n## ")[0]
    named = {word for row in table_rows(section) for cell in row for word in words_in(cell)}
    own = [entry for entry in (ROOT / "lib" / "spindle").iterdir() if not entry.is_symlink()]
    packages = {entry.name for entry in own if (entry / "__init__.py").exists()}
    modules = {entry.stem for entry in own if entry.suffix == ".py" and entry.stem != "__init__"}
    assert named == packages | modules


def test_no_tracked_file_names_a_place_on_one_machine() -> None:
    """Paths of the machine where this was written would mislead on every other."""
    places = re.compile("|".join(("(?<![\\w.])/" + "work/", "/tmp/" + "bash_jobs", "(?<![\\w.])/home" + "/[a-z]")))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail(listed.stderr)
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    found = [str(file) for file in files if places.search(file.read_text(encoding="utf-8", errors="replace"))]
    assert found == []


# --- the SQL


def queries() -> list[str]:
    """The SQL of all documents: fenced blocks, and what `spindle sql` is given."""
    found = []
    for document in DOCUMENTS:
        text = text_of(document)
        for block in re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found += [part.strip() for part in block.split(";") if part.strip()]
        asked = re.findall(r'spindle sql [^"\n]*"([^"]+)"', code_in(text))
        found += [query for query in asked if "..." not in query]
    return found


def test_every_query_runs_on_a_new_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    """Analysed against the real tables, all of which are there from the start; empty ones answer at once."""
    from spindle.cli.ask import register

    warehouse = tables.create(spark, str(tmp_path / "warehouse"), 4, {})
    assert len(queries()) >= 5
    for query in queries():
        register(warehouse, query)
        spark.sql(query).collect()


# --- the rules catch what they should


@pytest.mark.parametrize(
    ("text", "make", "spindle", "dotted"),
    [
        ("run `make PYTHON=python3 setup`", {"setup"}, set(), set()),
        ("```\nmake nothing\n. x/activate\nspindle crawl a --turns 3\n```", {"nothing"}, {"crawl"}, set()),
        ("they make sense of spindle sql", set(), set(), set()),
        ("`spindle X`, `lib/spindle is`, `spindle --help`", set(), set(), set()),
        ("`fetch.window_s` of `jobs/fetch.py`, `a.b.c`", set(), set(), {("fetch", "window_s")}),
        ("a span `spindle\nsql` over a line end", set(), {"sql"}, set()),
    ],
)
def test_names_are_found_by_their_form(text: str, make: set[str], spindle: set[str], dotted: set[object]) -> None:
    code = code_in(text)
    assert (make_targets(code), spindle_commands(code), dotted_names(code)) == (make, spindle, dotted)
