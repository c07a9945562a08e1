"""Source in colours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apps.dashboard.highlight import Piece, lines


def test_keywords_strings_numbers_and_comments_are_told_apart() -> None:
    [line] = lines("return 5 + f('x')  # why", python=True)
    assert [piece for piece in line if piece.kind] == [
        Piece("return", "keyword"),
        Piece("5", "number"),
        Piece("'x'", "string"),
        Piece("# why", "comment"),
    ]


def test_a_text_over_several_lines_is_one_in_each() -> None:
    assert [line[-1].kind for line in lines('a = """one\ntwo\nthree"""', python=True)] == ["string"] * 3


def test_what_is_no_python_is_plain() -> None:
    assert lines("def (((", python=True) == ((Piece("def ((("),),)
    assert lines("return 5", python=False) == ((Piece("return 5"),),)


@given(st.text(alphabet=st.sampled_from("ab 'x\"#\n()=:5\t\\\r\x0c\x1cé{}f")))
def test_no_character_is_lost(text: str) -> None:
    assert ["".join(piece.text for piece in line) for line in lines(text, python=True)] == text.splitlines()
