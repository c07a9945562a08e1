"""Whatever people, senders and steps write is shown as text, and htmx never looks at it (attacks 107, 109)."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

from django.test import Client

from apps.accounts.models import User
from apps.runs import markdown
from apps.runs.models import Attempt, Run, StepRun
from apps.tools.models import OwnershipDiagnostic, ToolSession
from apps.webhooks.models import Delivery, Trigger
from apps.workflows.models import Group, PlanRevision, Variable, Workflow
from tests.browser.demo import Demo
from tests.pages import addresses

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)><b hx-get="/x" hx-trigger="load">{{7*7}}</b>'
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Watch(HTMLParser):
    """Finds what the hostile text would have made, and where its text stands without a fence against htmx."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.made: list[str] = []
        self.unfenced: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "img" or (tag == "b" and "hx-get" in names) or (tag == "script" and "src" not in names):
            self.made.append(self.get_starttag_text() or tag)
        self.inline += [f"{tag} {name}" for name in names if name == "style" or name.startswith("on")]
        if tag == "style":
            self.inline.append(tag)
        if tag not in VOID:
            self.open.append((tag, "hx-disable" in names))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        fenced = any(fence for _, fence in self.open) or any(
            tag in {"title", "option", "textarea"} for tag, _ in self.open
        )
        if "alert(1)" in data and not fenced:
            self.unfenced.append(data[:80])


def spoil(demo: Demo) -> None:
    """Put the hostile text into every column that a person, a sender or a step can fill."""
    Workflow.objects.update(title=HOSTILE, objective=HOSTILE)
    Run.objects.update(reason=HOSTILE, trigger_name=HOSTILE[:120], initiated_by=HOSTILE, group=HOSTILE[:64])
    StepRun.objects.update(title=HOSTILE, reason=HOSTILE)
    Attempt.objects.update(
        detail=HOSTILE, reason=HOSTILE[:64], claims={"concerns": [HOSTILE], "refusal": {"reason": HOSTILE}}
    )
    Attempt.objects.update(
        contract={"step": {"title": HOSTILE}, HOSTILE: HOSTILE}, findings=[{"path": HOSTILE, "message": HOSTILE}]
    )
    Delivery.objects.update(
        event=HOSTILE[:120], claimed_id=HOSTILE, reason=HOSTILE, headers={HOSTILE: HOSTILE}, body=HOSTILE.encode()
    )
    Trigger.objects.update(definition={"events": [HOSTILE]}, group=HOSTILE[:64])
    ToolSession.objects.update(name=HOSTILE[:120], end_reason=HOSTILE[:64])
    OwnershipDiagnostic.objects.update(caller=HOSTILE, tool_session=HOSTILE, tool=HOSTILE[:64])
    Variable.objects.update(value=HOSTILE, description=HOSTILE)
    Group.objects.update(values={"X": HOSTILE})
    for revision in PlanRevision.objects.all():
        for step in revision.plan["steps"]:
            step |= {"title": HOSTILE, "description": HOSTILE}
        revision.save()


def test_hostile_text_stays_text_on_every_page(demo: Demo, as_user: Callable[[User], Client]) -> None:
    spoil(demo)
    client = as_user(demo.cast.owner)
    for address in [*addresses.lists(demo), *addresses.objects(demo)]:
        if "/files/" in address:
            continue
        watch = Watch()
        response = client.get(address)
        assert response.status_code == 200, address
        watch.feed(response.text)
        assert watch.made == [], address
        assert watch.unfenced == [], address
        assert watch.inline == [], address


def test_no_page_has_inline_script_or_style(demo: Demo, as_user: Callable[[User], Client]) -> None:
    client = as_user(demo.cast.owner)
    for address in ["/accounts/login/", "/accounts/password/change/", "/nothing/", *addresses.lists(demo)]:
        watch = Watch()
        watch.feed(client.get(address).text)
        assert (watch.inline, [made for made in watch.made if "script" in made]) == ([], []), address


def test_markdown_becomes_harmless_html() -> None:
    text = """# T

<script>x</script>

[a](javascript:alert(1)) ![i](http://x/y.png) [ok](https://example.test)

| a |
| - |
| b |"""
    html = markdown.harmless(text)
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert "<img" not in html
    assert '<a href="https://example.test" rel="noopener noreferrer nofollow">ok</a>' in html
    assert "<table>" in html
