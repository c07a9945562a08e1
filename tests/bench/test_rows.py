"""The table of the bench: every row with floor, ours, ratio, and whether its aim is met."""

from __future__ import annotations

from tests.bench.__main__ import ROWS
from tests.bench.rows import Row, quantile, table

GOOD = Row("a step", "ms", 20.0, 22.0, "<= 1.15 x", lambda row: row.ratio <= 1.15, note="on a quiet machine")
BAD = Row("a call", "ms", 0.05, 1.5, "<= 0.25 ms", lambda row: row.ours <= 0.25)


def test_each_row_says_floor_ours_ratio_and_whether_its_aim_is_met():
    head, _, good, bad, *rest = table([GOOD, BAD]).splitlines()
    assert head.split() == ["what", "floor", "ours", "ratio", "aim", "met"]
    assert good.split() == ["a", "step", "20.0", "ms", "22.0", "ms", "1.10", "x", "<=", "1.15", "x", "yes"]
    assert bad.split()[-1] == "no"
    assert rest[-1] == "a step: on a quiet machine"


def test_a_quantile_is_one_of_the_values():
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0, 0.5, 0.99, 1)] == [1.0, 2.0, 3.0, 3.0]


def test_every_row_of_the_issue_is_there():
    assert set(ROWS) >= {
        "forty-steps", "steps-a-second", "tool-call", "tool-call-http", "deliveries", "first-line", "print-to-browser",
        "log-opening",
    }  # fmt: skip
