"""One renderer: the page, htmx and the socket show the same HTML for the same moment."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.runs import fragments
from apps.runs.fragments import FRAGMENTS, Choice
from apps.runs.kinds import Kind
from apps.runs.models import Run
from tests.browser.demo import Demo

VOID = {"meta", "link", "input", "br", "hr", "img", "path", "rect", "circle", "line"}


class Roots(HTMLParser):
    """The outermost elements' ids."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.ids: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.depth == 0:
            self.ids.append(dict(attrs).get("id"))
        self.depth += tag not in VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag not in VOID


def test_a_fragment_has_one_root_and_its_id(demo: Demo) -> None:
    for run_id in demo.runs.values():
        run = Run.objects.get(pk=run_id)
        for name, fragment in FRAGMENTS.items():
            roots = Roots()
            roots.feed(fragments.render(name, run))
            assert (roots.ids, roots.depth) == ([fragment.root_id], 0), name


@pytest.mark.parametrize("state", ["good", "failed", "retried"])
def test_page_and_htmx_and_socket_agree(demo: Demo, as_user: Callable[[User], Client], state: str) -> None:
    client, run = as_user(demo.cast.viewer), Run.objects.get(pk=demo.runs[state])
    page = client.get(f"/runs/{run.pk}/?step={run.steps.first().step_id}").text
    pushed = fragments.render_all([name for name in FRAGMENTS if name not in {"timeline", "graph"}], run)
    for name, html in pushed.items():
        alone = client.get(f"/runs/{run.pk}/fragments/{name}/").text
        assert alone == html, name
        assert without_step(html) in without_step(page), name


def without_step(html: str) -> str:
    """The page's own fragments name the reader's step in the address they fetch themselves from."""
    return re.sub(r'(/fragments/\w+/)\?step=[^"]+', r"\1", html)


def test_a_fragment_per_step_follows_the_readers_choice(demo: Demo, as_user: Callable[[User], Client]) -> None:
    client = as_user(demo.cast.viewer)
    html = client.get(f"/runs/{demo.runs['retried']}/fragments/result/?step=check-market&attempt=1").text
    run = Run.objects.get(pk=demo.runs["retried"])
    assert html == fragments.render("result", run, Choice("check-market", 1))


def test_every_kind_of_event_says_what_it_makes_stale() -> None:
    for kind in Kind:
        assert set(fragments.STALE[kind]) <= set(FRAGMENTS)
    assert fragments.stale_after(["log.grew"]) == []
    assert fragments.stale_after(["tool.called", "tool.called"]) == ["calls"]
    assert fragments.stale_after(["run.failed", "tool.rejected"])[0] == "head"


def test_the_socket_is_not_given_what_depends_on_the_reader(demo: Demo) -> None:
    run = Run.objects.get(pk=demo.runs["good"])
    pushed = fragments.render_all(FRAGMENTS, run)
    assert set(pushed) == {name for name, fragment in FRAGMENTS.items() if not fragment.per_step}
    assert all("csrf" not in html for html in pushed.values())


def test_an_unknown_fragment_is_not_there(demo: Demo, as_user: Callable[[User], Client]) -> None:
    assert as_user(demo.cast.viewer).get(f"/runs/{demo.runs['good']}/fragments/none/").status_code == 404
