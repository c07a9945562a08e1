"""The log reader in a real browser, before the product started as a user starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from tests.browser.conftest import Watched, watched
from tests.browser.look import sign_in
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.sandbox]

TEAM = """
from pathlib import Path
from django.db import transaction
from tests import factories
from apps.workflows import actions as workflows
cast = factories.make_team("payments")
workflows.import_workflow(cast.team, cast.owner, Path("docs/examples/noisy"))
for slug, code in given["codes"].items():
    raw = factories.document(slug, steps=[factories.step("say")])
    factories.make_workflow(cast.team, cast.owner, raw, {"code/say/main.py": code})
answer(True)
"""
SILENCE_MS = 13_000  # more than what static/js/live.js bears
START = """
from django.db import transaction
from apps.runs import actions
from apps.workflows.models import Workflow
with transaction.atomic():
    run = actions.start_run(workflow=Workflow.objects.get(slug=given["slug"]), entry_path="manual",
                            initiated_by="a test", group="default")
answer(str(run.pk))
"""
ENDED = """
from apps.runs.models import Attempt
from apps.workflows.places import places_of
row = Attempt.objects.select_related("step_run__run__workflow").filter(
    step_run__run_id=given["run"], finished_at__isnull=False).first()
if row is None:
    answer(None)
else:
    places = places_of(row.step_run.run.workflow).attempt(given["run"], row.step_run.step_id, row.number)
    count = places.out / "count.json"
    answer({"seal": row.seal, "count": json.loads(count.read_text()) if count.exists() else None})
"""
DRIP = """
import time
time.sleep(2)
for number in range(1, 501):
    print(f"drop {number}", flush=True)
    time.sleep(0.005 if number < 150 else 0.025)
"""
BROOK = """
import time
for number in range(1, 501):
    print(f"drop {number}", flush=True)
    time.sleep(0.025)
"""
HOSTILE = r"""
import sys
out = sys.stdout.buffer
for line in (
    b"<script>document.title='owned'</script><img src=x onerror=document.title=1> {{7*7}} <b hx-get=/ hx-trigger=load>",
    b"\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07 and \x1b]8;;javascript:alert(2)\x1b\\too\x1b]8;;\x1b\\",
    b"\x1b]0;owned\x07title \x1b]2;owned\x1b\\set",
    b"\x1b[2J\x1b[H\x1b[10;10Hcursor\x1b[5A\x1b[?25l moves\x1bc",
    "\x9b31mC1 red\x9b0m \x9d0;owned\x9c\x85end".encode(),
    "bidi \u202eevil\u202c \u2066x\u2069 \u200f.".encode(),
    b"unended \x1b]0;all of this is text",
    b"\x1b[31mred\x1b[0m \x1b[1;48;2;10;20;200mblue\x1b[0m \x1b[38;5;999mfar\x1b[0m",
    b"bar 10%\rbar 100%",
    b"nul \x00 bell \x07 del \x7f bad \xff\xfe half \xe2\x82",
):
    out.write(line + b"\n")
out.write(b"\x1b[31ma\x1b[32mb" * 500_000 + b"\n")
out.write(b"the end\n")
"""
CODES = {"drip": DRIP, "brook": BROOK, "hostile": HOSTILE}

# In the page: the number of the last line that is in sight.
LAST_SEEN = """() => {
  const view = document.querySelector("[data-log-view]").getBoundingClientRect();
  const seen = [...document.querySelectorAll(".log-text")].filter((row) => {
    const at = row.getBoundingClientRect();
    return row.textContent && at.top >= view.top - 1 && at.bottom <= view.bottom + 1;
  });
  return Number((seen.at(-1)?.textContent.match(/drop (\\d+)/) || [])[1] || 0);
}"""

# In the page: goes through the whole log a window at a time and gives back what each line says it is.
READ_ALL = """async () => {
  const view = document.querySelector("[data-log-view]");
  const frame = async () => { for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame); };
  view.style.height = "60000px";
  view.style.maxHeight = "none";
  const numbers = new Set();
  let out = 0;
  for (let top = 0; ; top += 59000) {
    view.scrollTop = top;
    do await frame(); while (document.querySelector(".log-row.is-coming"));
    for (const row of document.querySelectorAll(".log-row")) {
      const number = Number(row.querySelector("[data-line]").dataset.line);
      if (numbers.has(number)) continue;
      numbers.add(number);
      const text = row.querySelector(".log-text").textContent;
      const own = / line 0*(\\d+) of the noise/.exec(text);
      if (own && Number(own[1]) === number) out += 1;
    }
    if (top + view.clientHeight >= view.scrollHeight) break;
  }
  return { numbers: numbers.size, last: Math.max(...numbers), out };
}"""


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with Product() as started:
        started.ask(TEAM, codes=CODES)
        yield started


@pytest.fixture(scope="module")
def cookies(product: Product, browser: Browser) -> Any:
    context = browser.new_context()
    sign_in(context.new_page(), product.url, "payments-owner")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def context(browser: Browser, cookies: Any) -> Iterator[BrowserContext]:
    made = browser.new_context(storage_state=cookies, viewport={"width": 1440, "height": 900})
    yield made
    made.close()


@pytest.fixture
def seen(context: BrowserContext) -> Iterator[Watched]:
    found = watched(context)
    yield found
    assert found.complaints == []


def start(product: Product, slug: str) -> str:
    return str(product.ask(START, slug=slug))


def ended(product: Product, run: str) -> dict[str, Any]:
    return dict(product.until(lambda: product.ask(ENDED, run=run), 120))


@pytest.fixture(scope="module")
def noisy(product: Product) -> tuple[str, dict[str, Any]]:
    run = start(product, "noisy")
    return f"{product.url}/runs/{run}/", ended(product, run)


def last_line(page: Page) -> Any:
    return page.locator(".log-row").last


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def test_a_hundred_thousand_lines_open_at_the_end_with_few_nodes(
    noisy: tuple[str, dict[str, Any]], seen: Watched
) -> None:
    address, end = noisy
    seen.page.goto(address)
    expect(last_line(seen.page)).to_contain_text("that was all the noise there is")
    assert last_line(seen.page).locator("[data-line]").inner_text() == str(end["seal"]["lines"])
    assert nodes(seen.page) < 1_500
    expect(seen.page.locator("[data-log-seal]")).to_contain_text(end["seal"]["sha256"])
    expect(seen.page.locator("[data-log-follow]")).to_be_hidden()


def test_every_line_can_be_reached_and_the_counts_agree(noisy: tuple[str, dict[str, Any]], seen: Watched) -> None:
    address, end = noisy
    seen.page.goto(address)
    expect(last_line(seen.page)).to_contain_text("that was all the noise there is")
    got = seen.page.evaluate(READ_ALL)
    assert got["numbers"] == got["last"] == end["seal"]["lines"]
    assert got["out"] == end["count"]["lines"] == 100_000


def test_a_search_counts_marks_and_steps(noisy: tuple[str, dict[str, Any]], seen: Watched) -> None:
    page = seen.page
    page.goto(noisy[0])
    found, box = page.locator("[data-log-found]"), page.get_by_label("Search the log")
    box.fill("LINE 050000 of")
    expect(found).to_have_text("1 of 1 lines, 1 matches")
    expect(page.locator(".log-row.is-match [data-line]")).to_have_text("50000")
    expect(page.locator(".log-row.is-match mark")).to_have_text("line 050000 of")
    box.fill("error")
    expect(found).to_have_text("1 of 10,000 lines, 10,000+ matches")
    box.fill("line 00012")
    expect(found).to_have_text("1 of 10 lines, 10 matches")
    box.press("Enter")
    expect(page.locator(".log-row.is-match [data-line]")).to_have_text("121")
    page.locator("[data-log-view]").focus()
    page.keyboard.press("N")
    expect(page.locator(".log-row.is-match [data-line]")).to_have_text("120")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(found).to_have_text("")
    expect(page.locator("mark")).to_have_count(0)
    box.fill("there is no such text")
    expect(found).to_have_text("none")


def test_a_link_leads_to_its_line(noisy: tuple[str, dict[str, Any]], seen: Watched) -> None:
    page = seen.page
    page.goto(f"{noisy[0]}#L500")
    picked = page.locator(".log-row.is-picked")
    expect(picked).to_contain_text("line 000500 of the noise")
    expect(picked).to_be_in_viewport()
    page.locator(".log-row [data-line='503']").click()
    expect(picked).to_contain_text("line 000503")
    assert page.url.endswith("#L503")
    page.evaluate("location.hash = '#L77777'")
    expect(picked).to_contain_text("line 077777")


def test_hostile_text_stays_text(product: Product, seen: Watched) -> None:
    page, run = seen.page, start(product, "hostile")
    ended(product, run)
    page.goto(f"{product.url}/runs/{run}/")
    title = page.title()
    rows = page.locator(".log-row .log-text")
    expect(rows.first).to_have_text(re.compile(re.escape("<script>document.title='owned'</script><img src=x")))
    texts = rows.all_inner_texts()
    assert texts[0].endswith("{{7*7}} <b hx-get=/ hx-trigger=load>")
    assert texts[1:4] == ["click and too", "title set", "cursor moves"]
    assert texts[4] == "C1 red \ufffdend"
    assert texts[5] == "bidi \ufffdevil\ufffd \ufffdx\ufffd \ufffd."
    assert texts[6] == "unended 0;all of this is text"
    assert texts[7] == "red blue far"
    assert texts[8] == "bar 100%"
    assert texts[9] == "nul \u2400 bell \u2407 del \u2421 bad \ufffd\ufffd half \ufffd"
    assert page.locator(".log-view :is(script, img, b, [hx-get], a[href*=javascript])").count() == 0
    assert page.locator(".log-text .fg-1").first.inner_text() == "C1 red"
    assert page.title() == title
    page.locator("[data-log-view]").focus()
    page.keyboard.press("G")
    expect(last_line(page)).to_contain_text("the end")
    assert nodes(page) < 5_000


def test_a_page_follows_a_step_from_before_its_first_byte_to_its_seal(product: Product, seen: Watched) -> None:
    """Without a reload: the mark that the page gets at first is still there at the end."""
    page, run = seen.page, start(product, "drip")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.goto(f"{product.url}/runs/{run}/")
    page.evaluate("window.same = true")
    expect(page.locator("[data-log]")).to_be_visible(timeout=15_000)
    expect(page.locator(".log-text", has_text="drop 20").first).to_be_visible(timeout=15_000)
    expect(page.locator("[data-log-follow]")).to_have_attribute("aria-pressed", "true")
    while page.evaluate(LAST_SEEN) < 150:  # whichever line is the newest when it is looked at
        page.wait_for_timeout(50)
    page.locator("[data-log-view]").focus()
    page.keyboard.press("g")
    expect(page.locator("[data-log-follow]")).to_have_attribute("aria-pressed", "false")
    more = page.locator("[data-log-new]")
    expect(more).to_contain_text("new line", timeout=15_000)
    expect(page.locator(".log-text").first).to_have_text("drop 1")
    page.evaluate("window.row = document.querySelector('.log-row')")
    expect(more).not_to_have_text(more.inner_text(), timeout=15_000)
    assert page.evaluate("window.row.isConnected"), "what is selected in a row would be lost"
    more.click()
    expect(more).to_be_hidden()
    end = ended(product, run)
    expect(page.locator("[data-seal-lines]")).to_have_text("500", timeout=15_000)
    assert end["seal"]["lines"] == 500
    expect(last_line(page)).to_contain_text("drop 500")
    expect(page.locator("[data-log-follow]")).to_be_hidden()
    expect(page.locator("#run-head .chip").first).to_contain_text("succeeded", timeout=15_000)
    expect(page.locator(".run-centre .card-head .chip")).to_contain_text("succeeded", timeout=15_000)
    assert page.evaluate("window.same") is True
    assert len(sockets) == 1


def test_a_line_that_is_dead_but_looks_open_is_noticed_and_nothing_is_lost(
    product: Product, context: BrowserContext
) -> None:
    page, run = context.new_page(), start(product, "brook")
    page.clock.install()  # its time goes by as ours does, but for what is skipped below
    dead = {"now": False}

    def between(line: WebSocketRoute) -> None:
        # What was opened while it was alive stays silent for ever, in both directions, and is never closed.
        server = line.connect_to_server()
        mine = {"cut": dead["now"]}
        cut.append(mine)
        line.on_message(lambda message: None if mine["cut"] else server.send(message))
        server.on_message(lambda message: None if mine["cut"] else line.send(message))
        line.on_close(lambda code, reason: None if mine["cut"] else server.close(code=code, reason=reason))

    cut: list[dict[str, bool]] = []
    page.route_web_socket(re.compile(r"/ws/live$"), between)
    page.goto(f"{product.url}/runs/{run}/")
    body = page.locator("body")
    expect(page.locator(".log-text", has_text="drop 20").first).to_be_visible(timeout=20_000)
    expect(body).to_have_attribute("data-live", "live")
    dead["now"] = True
    cut[0]["cut"] = True
    page.clock.fast_forward(SILENCE_MS)
    expect(body).to_have_attribute("data-live", "stale", timeout=16_000)
    expect(page.get_by_text("stale: no connection")).to_be_visible()
    dead["now"] = False
    ended(product, run)
    page.clock.fast_forward(SILENCE_MS)  # the line that came next was dead as well
    expect(body).to_have_attribute("data-live", "live", timeout=40_000)
    expect(page.locator("[data-seal-lines]")).to_have_text("500", timeout=15_000)
    expect(last_line(page)).to_contain_text("drop 500")
    got = page.evaluate(READ_ALL)
    assert got["numbers"] == got["last"] == 500


def test_a_page_has_one_socket_however_often_its_parts_are_replaced(product: Product, context: BrowserContext) -> None:
    page, run = context.new_page(), start(product, "hostile")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    for at in range(20):
        page.goto(f"{product.url}/runs/{run}/?tab={('log', 'graph')[at % 2]}")
        expect(page.locator("body")).to_have_attribute("data-live", "live")
    for _ in range(200):
        page.evaluate("htmx.trigger('#run-steps', 'stale')")
    expect(page.locator("body")).to_have_attribute("data-live", "live")
    assert len(sockets) == 20


@pytest.mark.parametrize("width", [360, 590, 1440])
def test_the_toolbar_stays_in_one_row(noisy: tuple[str, dict[str, Any]], context: BrowserContext, width: int) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(noisy[0])
    expect(last_line(page)).to_contain_text("that was all the noise there is")
    for needle in ("", "error"):
        page.get_by_label("Search the log").fill(needle)
        expect(page.locator("[data-log-found]")).to_have_text(re.compile("." if needle else "^$"))
        boxes = [shown.bounding_box() for shown in page.locator(".log-bar > :visible").all()]
        middles = [box["y"] + box["height"] / 2 for box in boxes if box]
        assert max(middles) - min(middles) < 12
        bar = page.locator(".log-bar").bounding_box()
        assert bar is not None
        assert all(box["x"] + box["width"] <= bar["x"] + bar["width"] + 1 for box in boxes if box)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
