"""A secret is masked however it got written, wherever the stream was cut, and nothing else is touched."""

from __future__ import annotations

import base64
import json
import string
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.logs import Masker
from engine.logs.masking import MASK

SECRET = 'hun"ter2/&+ é'
PEM = "-----BEGIN KEY-----\nMIIEowIBAAKCAQ\nq83vEjRWeJA=\nshort\n-----END KEY-----"
TEXT = st.text(alphabet=string.ascii_letters + string.digits + "/+=&\"'\\ é☃", min_size=8, max_size=60)


def streamed(masker: Masker, pieces: list[bytes]) -> bytes:
    stream = masker.stream()
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.close()])


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        repr({"k": SECRET}),
        ascii({"k": SECRET}),
        json.dumps({"log": json.dumps({"k": SECRET})}),
        json.dumps(json.dumps(SECRET, ensure_ascii=False), ensure_ascii=False),
        base64.b32encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"a" + SECRET.encode() + b"b").decode(),
        base64.b64encode(b"ab" + SECRET.encode() + b"cd").decode(),
        base64.urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
    ],
)
def test_every_usual_spelling_is_masked(spelling: str) -> None:
    masked = Masker({"S": SECRET}).text(f"before {spelling} after")
    assert "***" in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert not Masker({"S": SECRET}).finds(masked.encode())


def test_each_line_of_a_secret_of_many_lines_is_masked() -> None:
    masked = Masker({"KEY": PEM}).text("got MIIEowIBAAKCAQ and q83vEjRWeJA= here")
    assert masked == "got *** and *** here"


def test_a_secret_of_many_lines_printed_whole_keeps_its_number_of_lines() -> None:
    masked = Masker({"KEY": PEM}).text(f"<{PEM}>\n")
    assert masked == "<***\n***\n***\n***\n***>\n"


def test_a_long_secret_in_wrapped_base64_is_masked() -> None:
    secret = "".join(chr(33 + at % 90) for at in range(200))
    masked = Masker({"S": secret}).mask(base64.encodebytes(secret.encode()))
    assert masked.replace(MASK, b"").strip(b"=\n") == b""


def test_a_short_secret_masks_nothing_and_is_named() -> None:
    masker = Masker({"ONE": "a", "SEVEN": "1234567", "EIGHT": "12345678", "EMPTY": ""})
    assert masker.text("a banana 1234567 12345678") == "a banana 1234567 ***"
    assert masker.too_short == ("ONE", "SEVEN")


def test_secrets_that_overlap_are_masked_as_one() -> None:
    masker = Masker({"A": "abcdefgh", "B": "efghijkl"})
    assert masker.text("..abcdefghijkl..") == "..***.."


def test_whole_lines_are_never_late() -> None:
    stream = Masker({"S": "correct horse"}).stream()
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"another corr") == b"another "
    assert stream.feed(b"idor\n") == b"corridor\n"


def test_half_a_secret_is_held_back_until_it_is_known() -> None:
    stream = Masker({"S": "correct horse"}).stream()
    assert stream.feed(b"say correct ho") == b"say "
    assert stream.feed(b"rse now") == b"*** now"


@settings(max_examples=150, deadline=None)
@given(
    secrets=st.lists(TEXT, min_size=1, max_size=3), noise=st.lists(st.binary(max_size=12), max_size=6), data=st.data()
)
def test_the_pieces_a_stream_is_cut_into_make_no_difference(
    secrets: list[str], noise: list[bytes], data: st.DataObject
) -> None:
    masker = Masker({str(at): secret for at, secret in enumerate(secrets)})
    parts = [part for pair in zip(noise, [secret.encode() for secret in secrets] * 6, strict=False) for part in pair]
    whole = b"".join(data.draw(st.permutations(parts)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert streamed(masker, pieces) == masker.mask(whole)


@settings(max_examples=150, deadline=None)
@given(secret=TEXT, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_no_secret_comes_through(secret: str, before: bytes, after: bytes) -> None:
    masker = Masker({"S": secret})
    raw = secret.encode()
    for spelling in (raw, base64.b64encode(before + raw + after), json.dumps(secret).encode(), raw.hex().encode()):
        masked = masker.mask(before + spelling + after)
        kept = masked.replace(MASK, b"")
        assert raw not in kept or raw in before + after


@settings(max_examples=100, deadline=None)
@given(text=st.binary(max_size=200))
def test_what_holds_no_secret_is_not_touched(text: bytes) -> None:
    masker = Masker({"S": "a secret that no random text has"})
    assert streamed(masker, [text]) == text


def test_values_inside_json_are_masked_with_their_keys() -> None:
    masker = Masker({"S": "correct horse"})
    assert masker.value({"correct horse": ["x correct horse", 1, None]}) == {"***": ["x ***", 1, None]}
