"""Every page and every act of the seeded team, by the role it needs."""

from __future__ import annotations

from tests.browser.demo import Demo

TABS = ("plan", "code", "variables", "triggers", "deliveries", "history", "settings")


def lists(demo: Demo) -> list[str]:
    """Pages that anyone who signed in may open; what they show depends on the teams."""
    return ["/", "/workflows/", "/runs/", "/deliveries/", "/sessions/", "/sessions/?ended=1"]


def objects(demo: Demo) -> list[str]:
    """Pages about one thing of the team."""
    flow, runs = "/t/payments/workflows/pr-review/", demo.runs
    return [
        "/t/payments/workflows/",
        flow,
        *(f"{flow}{tab}/" for tab in TABS),
        *(f"/runs/{run}/" for run in runs.values()),
        *(f"/runs/{runs['good']}/?step=review&tab={tab}" for tab in ("log", "timeline", "graph", "result")),
        f"/runs/{runs['good']}/fragments/head/",
        f"/runs/{runs['good']}/steps/review/1/contract/",
        f"/runs/{runs['good']}/steps/review/1/files/report.md",
        f"/deliveries/{demo.delivery}/",
        f"/deliveries/{demo.delivery}/card/",
        f"/sessions/{demo.session}/",
    ]


def acts(demo: Demo) -> list[tuple[str, str, dict[str, str]]]:
    """(the least role, address, form) of each act."""
    flow = "/t/payments/workflows/market-checks/"
    trigger = demo.workflow.triggers.first().pk
    return [
        (
            "operator",
            f"{flow}start/",
            {"group": "asia", "p.check-market.market": '"bonds"', "p.check-market.limit": "5"},
        ),
        ("operator", f"/runs/{demo.runs['held']}/cancel/", {}),
        ("operator", f"/runs/{demo.runs['good']}/rerun/", {}),
        ("operator", f"/runs/{demo.runs['lost']}/settle/", {"step_id": "check-market", "choice": "mark_failed"}),
        ("operator", f"/deliveries/{demo.delivery}/redeliver/", {}),
        ("editor", f"{flow}variables/set/", {"name": "TOLERANCE_PERCENT", "value": "4"}),
        ("editor", f"{flow}groups/set/", {"name": "asia", "enabled": "on"}),
        ("editor", f"{flow}secrets/set/", {"name": "GITHUB_TOKEN", "value": "a-long-enough-value"}),
        ("editor", f"{flow}triggers/new/", {"kind": "bearer", "name": "another"}),
        ("editor", f"/triggers/{trigger}/rotate/", {}),
        ("editor", f"/triggers/{trigger}/drop-old/", {}),
        ("editor", f"/triggers/{trigger}/enable/", {}),
        ("editor", f"/triggers/{trigger}/delete/", {}),
    ]
