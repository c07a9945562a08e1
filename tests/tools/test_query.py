"""query_workflow_db: everything that reads, nothing else, within bounds; errors say the likely fix."""

from __future__ import annotations

import sqlite3

import pytest

from apps.tools.errors import Code, ToolFailure
from apps.tools.workflow_db import database, reading, writing
from apps.tools.workflow_db.database import Database
from apps.tools.workflow_db.writing import Mark, Statement
from engine.ids import uuid7

SCHEMA = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, who TEXT NOT NULL, data TEXT);
CREATE TABLE tags (note INTEGER REFERENCES notes(id), tag TEXT);
CREATE INDEX tags_by_note ON tags (note);
CREATE VIEW loud AS SELECT upper(who) AS who FROM notes;
CREATE VIEW spy AS SELECT * FROM _pulse_receipts;
"""


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "db" / "workflow.sqlite3"
    database.make(path)
    raw = sqlite3.connect(path)
    raw.executescript(SCHEMA)
    raw.executemany("INSERT INTO notes VALUES (?, ?, ?)", [(n, f"name{n}", '{"a": 1}') for n in range(1, 1201)])
    raw.commit()
    raw.close()
    with Database(path) as opened:
        yield opened


def refusal(db, sql, *params, **more) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        reading.query(db, sql, list(params), **more)
    return caught.value


def rows(db, sql, params=None, **more):
    return reading.query(db, sql, params, **more)["rows"]


def test_rows_are_objects_and_parameters_are_bound(db):
    assert rows(db, "SELECT id, who FROM notes WHERE id = ?", [2]) == [{"id": 2, "who": "name2"}]
    assert rows(db, "SELECT id FROM notes WHERE who = :w", {"w": "name3"}) == [{"id": 3}]
    assert rows(db, "WITH n AS (SELECT 5 AS five) SELECT five FROM n") == [{"five": 5}]
    assert rows(db, "-- a comment\n/* and one */ VALUES (1)") == [{"column1": 1}]


def test_pages_follow_each_other_without_a_gap(db):
    seen, offset = [], 0
    while offset is not None:
        page = reading.query(db, "SELECT id FROM notes ORDER BY id", max_rows=500, offset=offset)
        seen += [row["id"] for row in page["rows"]]
        offset = page["next_offset"]
    assert seen == list(range(1, 1201))


def test_a_page_that_is_just_full_has_no_next(db):
    page = reading.query(db, "SELECT id FROM notes WHERE id <= 500", max_rows=500)
    assert (page["row_count"], page["next_offset"]) == (500, None)


def test_a_page_ends_at_its_bytes_and_says_where_to_go_on(db):
    page = reading.query(db, "SELECT id, hex(zeroblob(100000)) AS big FROM notes", max_rows=10_000)
    assert 0 < page["row_count"] < 100
    assert page["next_offset"] == page["row_count"]


def test_values_that_json_lacks_have_their_spelling(db):
    assert rows(db, "SELECT x'00ff' AS b, 9e999 AS i, NULL AS n") == [{"b": {"$base64": "AP8="}, "i": "inf", "n": None}]
    assert rows(db, "SELECT typeof(?) AS t", [{"$base64": "AP8="}]) == [{"t": "blob"}]
    assert refusal(db, "SELECT ?", {"$base64": "!"}).code == Code.ARGUMENTS_REJECTED


def test_two_columns_of_one_name_are_refused_rather_than_lost(db):
    assert "who" in refusal(db, "SELECT who, who FROM notes").message


def test_it_describes_the_callers_tables_and_never_the_platforms(db):
    described = reading.describe(db)
    assert [table["name"] for table in described["tables"]] == ["loud", "notes", "spy", "tags"]
    notes = described["tables"][1]
    assert notes["rows"] == 1200
    assert [column["name"] for column in notes["columns"]] == ["id", "who", "data"]
    assert described["tables"][3]["indexes"] == ["tags_by_note"]


def test_it_checks_integrity(db):
    assert reading.integrity_check(db) == {"ok": True, "messages": ["ok"], "foreign_keys": []}
    raw = sqlite3.connect(db.path)
    raw.execute("INSERT INTO tags VALUES (99999, 'x')")
    raw.commit()
    raw.close()
    checked = reading.integrity_check(db)
    assert checked["ok"] is False
    assert checked["foreign_keys"][0]["refers_to"] == "notes"


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA integrity_check",
        "PRAGMA quick_check",
        "PRAGMA foreign_key_check",
        "PRAGMA table_info(notes)",
        "PRAGMA table_xinfo('notes')",
        "PRAGMA index_list(tags)",
        "PRAGMA foreign_key_list(tags)",
        "PRAGMA user_version",
        "SELECT name FROM pragma_table_info('notes')",
        "SELECT who FROM notes WHERE who REGEXP '^name1[0-9]$'",
        "SELECT json_extract(data, '$.a') FROM notes LIMIT 1",
        "SELECT value FROM json_each('[1, 2]')",
        "EXPLAIN QUERY PLAN SELECT * FROM notes",
        "SELECT row_number() OVER (ORDER BY id) AS n FROM notes LIMIT 1",
    ],
)
def test_the_published_reads_are_offered(db, sql):
    assert rows(db, sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO notes (who) VALUES ('x')",
        "UPDATE notes SET who = 'x'",
        "DELETE FROM notes",
        "WITH x AS (SELECT 1) INSERT INTO notes (who) SELECT 'x' FROM x",
        "WITH x AS (SELECT 1) DELETE FROM notes",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "DROP TABLE notes",
        "ALTER TABLE notes ADD COLUMN x",
        "ATTACH DATABASE '/etc/passwd' AS x",
        "ATTACH ':memory:' AS x",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO '/tmp/copy.sqlite3'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT a",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA writable_schema=ON",
        "PRAGMA query_only=OFF",
        "PRAGMA user_version=5",
        "PRAGMA database_list",
        "PRAGMA table_info(_pulse_receipts)",
        "PRAGMA temp_store_directory='/tmp'",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_table_info('_pulse_receipts')",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM sqlite_schema",
        "SELECT * FROM SQLITE_TEMP_MASTER",
        "SELECT * FROM _pulse_receipts",
        'SELECT * FROM main."_PULSE_receipts"',
        "SELECT (SELECT count(*) FROM _pulse_fences)",
        "SELECT * FROM spy",
        "SELECT who FROM notes WHERE id IN (SELECT fence FROM _pulse_fences)",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/x', 'y')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT bm25(1)",
        "SELECT json_pretty('{}')",
        "SELECT sqlite_rename_quotefix('a', 'b')",
        "CREATE VIRTUAL TABLE x USING fts5(a)",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE notes",
        "",
        "-- only a comment",
        "nonsense",
    ],
)
def test_everything_else_is_refused_and_changes_nothing(db, sql):
    before = db.path.read_bytes()
    assert refusal(db, sql).code == Code.SQL_ERROR
    assert db.path.read_bytes() == before
    assert rows(db, "SELECT count(*) AS n FROM notes") == [{"n": 1200}]


def test_a_file_of_the_host_is_never_reached_by_a_path_in_sql(db, tmp_path):
    sentinel = tmp_path / "other.sqlite3"
    sqlite3.connect(sentinel).execute("CREATE TABLE secret (x)").connection.close()
    before = sentinel.read_bytes()
    for path in (sentinel, "../other.sqlite3", f"file:{sentinel}?mode=rwc", "/etc/passwd"):
        for sql in (f"ATTACH '{path}' AS o", f"VACUUM INTO '{path}'", f"SELECT writefile('{path}', 'x')"):
            assert refusal(db, sql).code == Code.SQL_ERROR
    assert sentinel.read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "params", "hint"),
    [
        ("SELECT json_extract(data, $.a) FROM notes", (), "'$.name'"),
        ("SELECT json_extract(data, 'a') FROM notes", (), "$"),
        ("SELECT json_extract('nonsense', '$.a')", (), "json_valid"),
        ("SELECT * FROM note", (), "Did you mean notes?"),
        ("SELECT whom FROM notes", (), "Did you mean who?"),
        ("SELECT * FROM notes WHERE who = [pull]", (), "single quotes"),
        ("SELECT * FROM notes WHERE id = ?", (), "params"),
        ("SELECT * FROM notes WHERE id = ?", (1, 2), "params"),
        ("SELECT x FROM notes, tags", (), "tags.tag"),
        ("SELECT * FROM sqlite_master", (), "describe"),
        ("INSERT INTO notes VALUES (1)", (), "mutate_workflow_db"),
        ("SELECT 1; SELECT 2", (), "one statement"),
        ("SELECT who FROM notes WHERE who REGEXP '('", (), "simpler pattern"),
        ("SELEC 1", (), "SELECT"),
    ],
)
def test_an_error_says_the_likely_fix(db, sql, params, hint):
    failed = refusal(db, sql, *params)
    assert hint in f"{failed.message} {failed.hint}"


def test_a_statement_that_takes_too_long_is_ended(db):
    forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n"
    failed = refusal(db, forever, seconds=0.3)
    assert failed.code == Code.LIMIT_EXCEEDED
    assert rows(db, "SELECT 1 AS one") == [{"one": 1}]


def test_a_pattern_that_would_hang_is_answered(db):
    assert rows(
        db, "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab' REGEXP '^(a+)+$' AS m"
    ) == [{"m": 0}]


@pytest.mark.parametrize("sql", ["SELECT zeroblob(100000000)", "SELECT randomblob(1000000000)"])
def test_a_value_beyond_its_bound_is_refused(db, sql):
    assert refusal(db, sql).code == Code.SQL_ERROR


def test_a_callers_text_never_meets_a_statement_of_the_platform(db):
    """Compiled statements are kept by their text; the platform's carry a mark, so guessing the text gains nothing."""
    with sqlite3.connect(db.path) as raw:
        raw.execute("DROP VIEW spy")
    raw.close()
    mark = Mark(uuid7(), uuid7(), "0" * 64, uuid7(), 1)
    writing.mutate(db, [Statement("INSERT INTO notes (who) VALUES ('x')", [None])], mark)
    for name in ("receipt", "fence", "applied", "tables"):
        text = getattr(db.reader.statements, name)
        params = (str(mark.call_id),) if "?" in text else ()
        db.reader.for_platform(text, params)
        assert refusal(db, text.partition("*/ ")[2] or text, *params).code == Code.SQL_ERROR


def test_a_reader_cannot_write_even_if_the_guard_were_gone(db):
    db.reader.raw.set_authorizer(None)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.reader.raw.execute("DELETE FROM notes")


def test_the_file_is_closed_to_everyone_else(db):
    assert db.path.stat().st_mode & 0o777 == 0o600
    assert db.path.parent.stat().st_mode & 0o777 == 0o700


def test_table_functions_survive_a_change_of_the_schema_by_others(db):
    assert rows(db, "SELECT value FROM json_each('[1]')") == [{"value": 1}]
    raw = sqlite3.connect(db.path)
    raw.execute("CREATE TABLE added (a)")
    raw.close()
    assert rows(db, "SELECT value FROM json_each('[2]')") == [{"value": 2}]
    assert rows(db, "SELECT name FROM pragma_table_info('added')") == [{"name": "a"}]
