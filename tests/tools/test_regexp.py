"""REGEXP says what Python's own engine says, and says it in time for every pattern."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tools.workflow_db.regexp import Unsupported, automaton

PATTERNS = [
    *("a+b", "^ab?c$", "(a|b)*c", r"\bfoo\b", "[a-c]{2,3}d", "(?i)hello", "^$", "x.y", "(?s)x.y", r"\d+\s\w", "[^ab]c"),
    *(
        "a{0,2}$",
        "(?m)^b",
        "(?m)a$",
        r"\Aab",
        r"ab\Z",
        "(ab|c)+?d",
        r"\Bo",
        "",
        "(?i)[^A-C]",
        "(a*)*b",
        "(?:x|)y$",
        r"[\w-]+@",
    ),
    *("(?a:\\w)", "é|ß", "(?i:ABC)d", ".", "a{3}", "(?x) a b # c", "$^", "^^a", "(|a)+$"),
]
texts = st.text(alphabet="abcdxyfoABC \n1_Helé@ß-", max_size=10)


def search(pattern: str, text: str) -> bool:
    return automaton(pattern).search(text, time.monotonic() + 30)


@given(st.sampled_from(PATTERNS), texts)
def test_it_finds_what_pythons_engine_finds(pattern, text):
    assert search(pattern, text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(a|aa)+$", "(.*)*x", "(a*)*(a*)*b", ".*.*.*.*.*=.*"])
def test_no_pattern_makes_it_hang(pattern):
    assert search(pattern, "a" * 5000 + "!") is False


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(", "[", "a{1000}{1000}", "x" * 1001, "*a"]
)
def test_what_has_no_automaton_is_refused_with_its_reason(pattern):
    with pytest.raises(Unsupported):
        automaton(pattern)


def test_it_stops_at_the_deadline():
    with pytest.raises(TimeoutError):
        automaton("a").search("b" * 1000, time.monotonic() - 1)
