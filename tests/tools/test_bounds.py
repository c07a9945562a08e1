"""No function keeps the database for longer than its bound, and each gives what SQLite's own gives."""

from __future__ import annotations

import itertools
import os
import resource
import sqlite3
import threading
import time
import traceback
from contextlib import suppress

import pytest

from apps.tools.errors import Code, ToolFailure
from apps.tools.identity import read_caller
from apps.tools.work import Databases, Work
from apps.tools.workflow_db import database, reading, watch, writing
from apps.tools.workflow_db.database import Connection, Database
from apps.tools.workflow_db.guard import Mode
from apps.tools.workflow_db.writing import Mark, Statement
from engine.ids import uuid7
from tests.tools import world

GENEROUS_S = 9.0
TEXTS = ["", "a", "A", "abc", "aXbXc", "  é b ", "ÄÖ", "a%b_c", "[x]", "x" * 70, 12, -3, 1.5, 1e20, 0.1, 1e-7, None]
PATTERNS = ["", "%", "_", "a%", "%C", "%b%", "_b_", "a%%c", "%_%", "ä%", "%x%x%", "1%", "1.0e+20", "\\%", "a\\%b\\_c"]
GLOBS = ["", "*", "?", "a*", "*c", "*[a-c]*", "[^a]*", "[]x]*", "[[]x]", "[a", "*b?c", "[a-]*", "A", "??"]


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "db" / "workflow.sqlite3"
    database.make(path)
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    raw.execute("INSERT INTO t VALUES (1, 'a')")
    raw.commit()
    raw.close()
    with Database(path) as opened:
        yield opened


@pytest.fixture
def same(db):
    """Whether ours and SQLite's own say the same."""
    native = sqlite3.connect(":memory:")

    def check(sql, values):
        ours = db.reader.raw.execute(sql, values).fetchone()
        assert (ours, values) == (native.execute(sql, values).fetchone(), values)

    yield check
    native.close()


def test_like_and_glob_fit_what_sqlites_own_fit(same):
    for text, pattern in itertools.product([*TEXTS, b"abc"], PATTERNS):
        same("SELECT ? LIKE ?", (text, pattern))
        same("SELECT ? LIKE ? ESCAPE '\\'", (text, pattern))
    for text, pattern in itertools.product(TEXTS, GLOBS):
        same("SELECT ? GLOB ?", (text, pattern))


def test_instr_replace_and_trim_give_what_sqlites_own_give(same):
    for text, part in itertools.product([*TEXTS, b"\x00ab"], ["", "a", "X", "é", "abc", " ", b"ab", 1, None]):
        same("SELECT instr(?, ?)", (text, part))
        same("SELECT trim(?1, ?2), ltrim(?1, ?2), rtrim(?1, ?2)", (text, part))
        same("SELECT replace(?, ?, 'zz')", (text, part))
    for text in TEXTS:
        same("SELECT trim(?1), ltrim(?1), rtrim(?1), typeof(trim(?1))", (text,))
    same("SELECT json_patch(?, ?)", ('{"a":1,"b":{"c":2}}', '{"b":{"c":null,"d":3}}'))
    same("SELECT trim(?, ?)", ("\u0100\u0101b\u0102", "".join(map(chr, range(0x100, 0x180)))))


FORMS = [
    "%d",
    "%5d|%-5d|%05d",
    "%+.3f %e %g %G %!g",
    "%s %10.2s %-6s|",
    "%c%.3c%5c",
    "%q %Q %w",
    "%x %X %o %u %i",
    "%,d",
]
ODD_FORMS = [
    "",
    "%",
    "%%",
    "100%% %s",
    "%5%|%s",
    "%n%s",
    "%lld %ld",
    "% d %#x",
    "%z %s",
    "%5-d",
    "%y %s",
    "%.5.3d %s",
    "%p %r",
]
STARS = ["%*d|%s", "%-*d|%s", "%.*f|%s", "%*.*f|%s", "%**d", "%0*d %.*s", "%.*c"]


def test_printf_gives_what_sqlites_own_gives(same):
    for form, values in itertools.product(
        [*FORMS, *ODD_FORMS, *STARS], [(), (3, -4, 5, 6), ("ab", 1.5, "it's"), (None, 7), (-4, 12.9, "x"), ("6x", 1, 2)]
    ):
        for name in ("printf", "format"):
            same(f"SELECT {name}(?{', ?' * len(values)})", (form, *values))
    same("SELECT printf(), printf(?)", (None,))


@pytest.mark.parametrize("form", ["%.*c", "%*d", "%s%-*.*s", "%l%%n%.*c"])
def test_a_width_out_of_the_values_is_judged_as_sqlite_takes_it(db, form):
    for large in (2_000_000_000, "2000000000 and more", -2_000_000_000, 2e9):
        with pytest.raises(ToolFailure, match="too large"):
            reading.query(db, "SELECT printf(?, ?, ?, ?)", [form, large, large, large])
    assert reading.query(db, "SELECT printf('%d %s', 2000000000, 2000000000) AS p")["row_count"] == 1


HEAVY = [
    "SELECT length(printf('%.*c', 2000000000, 'x'))",
    "SELECT length(format('%.2000000000c', 'x'))",
    "SELECT length(printf(replace(hex(zeroblob(1000)), '00', '%.4000000c')))",
    "SELECT length(printf(replace(hex(zeroblob(500000)), '00', '%9d')))",
    "SELECT length(unhex(hex(zeroblob(900000)), replace(hex(zeroblob(900000)), '0', 'x')))",
    "SELECT length(jsonb_patch(zeroblob(900000), zeroblob(900000)))",
    "SELECT instr(zeroblob(1500000), CAST(zeroblob(700000)||x'01' AS BLOB))",
    "SELECT length(replace(hex(zeroblob(700000)), substr(hex(zeroblob(350000)), 2)||'1', ''))",
    "SELECT length(replace(hex(zeroblob(500000)), '0', hex(zeroblob(500000))))",
    "SELECT trim(hex(zeroblob(900000)), printf('%.*c', 900000, 'x')||'0')",
    "SELECT hex(zeroblob(900000)) LIKE '%'||printf('%.*c', 900, '0')||'_1'",
    "SELECT hex(zeroblob(900000)) GLOB '*'||substr(replace(hex(zeroblob(90)), '0', '[0-9]'), 1, 900)||'1'",
    (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000),"
        " o(j) AS (SELECT json_group_object('k' || i, i) FROM n)"
        " SELECT length(json_patch(j, replace(j, 'k', 'l'))) FROM o"
    ),
    "SELECT " + ",".join(f"hex(zeroblob(900000)) LIKE '%_{'0_' * 400}{n}1'" for n in range(300)),
    "SELECT hex(zeroblob(30000000))",
    "SELECT " + ", ".join(f"length(hex(zeroblob(2000000))) AS a{n}" for n in range(1900)),
    (
        "WITH j(v) AS MATERIALIZED (SELECT '[' || replace(hex(zeroblob(400000)), '0', '1,') || '1]') SELECT "
        + ", ".join(f"length(json(v || substr('{' ' * 20}', 1, {n % 20}))) AS a{n}" for n in range(800))
        + " FROM j"
    ),
]


@pytest.mark.parametrize("sql", HEAVY, ids=range(len(HEAVY)))
def test_no_call_of_a_function_is_long(db, sql):
    began = time.monotonic()
    with suppress(ToolFailure):
        reading.query(db, sql, seconds=2.0)
    assert time.monotonic() - began < GENEROUS_S


SPILL = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
SPILLING = [
    SPILL + "SELECT i, randomblob(1000000) AS r FROM n ORDER BY r",
    SPILL + "SELECT count(*) AS c FROM (SELECT DISTINCT randomblob(1000000) FROM n)",
    SPILL + "SELECT count(*) AS c FROM (SELECT max(randomblob(1000000)) FROM n GROUP BY randomblob(1000000))",
    SPILL + "SELECT sum(i) OVER (ORDER BY r) AS s FROM (SELECT i, randomblob(1000000) AS r FROM n)",
    (
        "WITH RECURSIVE n(r) AS (SELECT randomblob(1000000) UNION SELECT randomblob(1000000) FROM n LIMIT 3000)"
        " SELECT count(*) AS c FROM n"
    ),
]


def written() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_oublock * 512


@pytest.mark.parametrize("sql", SPILLING, ids=range(len(SPILLING)))
def test_a_query_writes_no_more_temporary_files_than_it_may(db, monkeypatch, sql):
    monkeypatch.setitem(database.WRITTEN, Mode.READ, 10_000_000)
    before = written()
    with pytest.raises(ToolFailure, match="wrote more to the disk") as caught:
        reading.query(db, sql)
    assert caught.value.code == Code.LIMIT_EXCEEDED
    assert written() - before < 1_500_000_000  # each would write 3 GB
    assert reading.query(db, "SELECT count(*) AS c FROM t ORDER BY 1")["rows"] == [{"c": 1}]


def test_a_mutation_writes_no_more_than_it_may_and_changes_nothing(db, monkeypatch):
    monkeypatch.setitem(database.WRITTEN, Mode.WRITE, 10_000_000)
    with pytest.raises(ToolFailure, match="wrote more to the disk"):
        mutate(db, f"INSERT INTO t (v) {SPILL} SELECT randomblob(1000000) FROM n")
    with pytest.raises(ToolFailure, match="wrote more to the disk"):
        mutate(db, "INSERT INTO t (v) VALUES (randomblob(1000000 + ?))", *([n] for n in range(3000)))
    assert reading.query(db, "SELECT count(*) AS c FROM t")["rows"] == [{"c": 1}]


def test_queries_at_a_time_share_what_they_may_write(db, monkeypatch):
    monkeypatch.setattr(watch, "TOGETHER", 10_000_000)
    monkeypatch.setitem(database.WRITTEN, Mode.READ, 1 << 40)
    with pytest.raises(ToolFailure, match="wrote more to the disk"):
        reading.query(db, SPILLING[0])


def in_a_child(what) -> bool:
    """Whether `what` raised nothing, in a process of its own: the bound of memory is a whole process's, for good."""
    child = os.fork()
    if child == 0:
        try:
            what()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


HOARDING = [
    "SELECT " + ", ".join(f"hex(zeroblob(1000000)) AS a{n}" for n in range(100)),
    "SELECT length(max(" + ", ".join(f"hex(zeroblob(1000000)) || {n}" for n in range(100)) + ")) AS a",
    SPILL + "SELECT length(json_group_array(hex(zeroblob(1000000)))) AS a FROM n",
]


@pytest.mark.parametrize("sql", HOARDING, ids=["columns", "arguments", "aggregate"])
def test_a_query_takes_no_more_memory_than_it_may(tmp_path, monkeypatch, sql):
    monkeypatch.setattr(database, "HEAP", {"soft": 32 * database.MB, "hard": 64 * database.MB})

    def ask():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Database(tmp_path / "db" / "workflow.sqlite3") as opened:
            with pytest.raises(ToolFailure, match="too much memory") as caught:
                reading.query(opened, sql)
            assert caught.value.code == Code.LIMIT_EXCEEDED
            assert reading.query(opened, "SELECT 1 AS one")["rows"] == [{"one": 1}]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # each would take more

    assert in_a_child(ask)


def test_a_row_that_no_answer_could_hold_is_refused_before_it_is_one(db):
    with pytest.raises(ToolFailure, match="larger than an answer") as caught:
        reading.query(db, "SELECT hex(zeroblob(1500000)) AS a, hex(zeroblob(1500000)) AS b")
    assert caught.value.code == Code.RESULT_TOO_LARGE


def doubling(count: int) -> str:
    each = [f"a{n} AS (SELECT p.x FROM a{n - 1} p, a{n - 1} q)" for n in range(1, count)]
    return f"WITH a0(x) AS (SELECT 1), {', '.join(each)} SELECT x FROM a{count - 1}"


def test_tables_of_with_that_double_each_other_are_refused_before_they_are_compiled(db):
    began = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        reading.query(db, doubling(40))
    assert caught.value.code == Code.LIMIT_EXCEEDED
    with pytest.raises(ToolFailure):
        mutate(db, doubling(40).replace("SELECT x FROM", "INSERT INTO t (v) SELECT x FROM"))
    assert time.monotonic() - began < GENEROUS_S
    assert reading.query(db, doubling(6))["rows"] == [{"x": 1}]
    chain = ", ".join(f"b{n} AS NOT MATERIALIZED (SELECT x FROM b{n - 1})" for n in range(1, 100))
    assert reading.query(db, f"WITH b0(x) AS (SELECT 1), {chain} SELECT count(*) AS c FROM b99, b98")["row_count"] == 1


def test_views_checks_triggers_and_indexes_may_use_the_functions(db, tmp_path):
    raw = sqlite3.connect(db.path)
    raw.executescript(
        "CREATE TABLE c (x CHECK (trim(x) <> '' AND x LIKE 'a%')); CREATE INDEX i ON c (replace(x, 'a', 'b'));"
        "CREATE VIEW v AS SELECT instr(x, 'b') AS at FROM c;"
        "CREATE TRIGGER g AFTER INSERT ON c BEGIN UPDATE t SET v = rtrim(NEW.x); END;"
    )
    raw.close()
    mutate(db, "INSERT INTO c VALUES ('ab ')")
    assert reading.query(db, "SELECT at, (SELECT v FROM t) AS v FROM v")["rows"] == [{"at": 2, "v": "ab"}]
    assert reading.integrity_check(db)["ok"]
    with pytest.raises(ToolFailure, match="CHECK"):
        mutate(db, "INSERT INTO c VALUES (' ')")


def mutate(db, sql, *sets, **more):
    given = Mark(uuid7(), uuid7(), "d" * 64, None, None)
    return writing.mutate(db, [Statement(sql, list(sets) or [None], many=bool(sets))], given, **more)


def test_a_statement_that_runs_for_each_of_many_sets_ends_at_the_bound(db, monkeypatch):
    monkeypatch.setattr(writing, "TIME_LIMIT_S", 1.0)
    began = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        mutate(
            db, "UPDATE t SET v = length(hex(zeroblob(1000000)) || ?) WHERE id = 1", *([str(n)] for n in range(5000))
        )
    assert caught.value.code == Code.LIMIT_EXCEEDED
    assert time.monotonic() - began < GENEROUS_S
    assert reading.query(db, "SELECT v FROM t")["rows"] == [{"v": "a"}]


def test_a_statement_without_many_instructions_is_interrupted(db):
    """Few instructions lie between one row and the next: the handler that counts them is not asked in time."""
    raw = db.reader.raw
    raw.set_progress_handler(None, 0)
    began = time.monotonic()
    with pytest.raises(ToolFailure) as caught:
        reading.query(
            db,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0",
            seconds=0.5,
        )
    assert caught.value.code == Code.LIMIT_EXCEEDED
    assert time.monotonic() - began < GENEROUS_S
    assert reading.query(db, "SELECT 1 AS one")["rows"] == [{"one": 1}]


def test_a_session_that_ended_during_the_call_changes_nothing(db):
    with pytest.raises(ToolFailure) as caught:
        mutate(db, "DELETE FROM t", is_live=lambda: False)
    assert caught.value.code == Code.SESSION_ENDED
    assert reading.query(db, "SELECT count(*) AS c FROM t")["rows"] == [{"c": 1}]


@pytest.mark.django_db(transaction=True)
@pytest.mark.databases
def test_a_mutation_is_not_committed_once_its_session_has_ended():
    workflow = world.make_workflow()
    opened = world.open_client(workflow)
    caller = read_caller(opened.session.token_sha256)
    databases = Databases()
    work = Work(uuid7(), "", "", caller.session, caller.session, caller.team_id, None, databases)
    assert work.is_live()
    world.end(opened.session)
    assert not work.is_live()
    databases.close()


def test_a_fence_waits_for_the_lock(db):
    holder = Connection(db.path, mode=Mode.WRITE)
    holder.raw.execute("PRAGMA busy_timeout=0")
    with database._keeping:
        database._kept[db.path].raw.execute("PRAGMA busy_timeout=100")
    run_id = uuid7()
    raising = threading.Thread(target=database.raise_fence, args=(db.path, run_id, 7))
    with holder.writing():
        raising.start()
        time.sleep(0.6)  # several times the patience of one try
        assert raising.is_alive()
    holder.close()
    raising.join(GENEROUS_S)
    found = db.writer.for_platform(db.writer.statements.fence, (str(run_id),)).fetchone()
    assert found == (7,)


def test_who_waits_to_raise_a_fence_can_give_up_and_a_first_holder_does_not_wait(db):
    holder = Connection(db.path, mode=Mode.WRITE)
    asked = itertools.count()
    with holder.writing():
        assert not database.raise_fence(db.path, uuid7(), 2, lambda: next(asked) > 1)
        assert database.raise_fence(db.path, uuid7(), 1)
    holder.close()
    assert next(asked) == 3


def test_a_statement_that_is_too_long_once_compiled_says_so(db):
    with pytest.raises(ToolFailure) as caught:
        mutate(db, "INSERT INTO t (v) VALUES " + ",".join(["(hex(1 + 1))"] * 20_000))
    assert caught.value.code == Code.LIMIT_EXCEEDED
    assert "param_sets" in caught.value.hint
    assert mutate(db, "INSERT INTO t (v) VALUES " + ",".join(["('a')"] * 1000))["changes"] == 1000
