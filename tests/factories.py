"""What tests are made of: plain functions, each of which makes one real thing through the product's own actions."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.accounts import actions as accounts
from apps.accounts.models import Team, User
from apps.accounts.roles import Role
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow

_numbers = itertools.count(1)

HELLO = 'print("hello")\n'


@dataclass(frozen=True)
class Cast:
    """A team and the people around it: one of each role, and someone who is in another team only."""

    team: Team
    owner: User
    editor: User
    operator: User
    viewer: User
    outsider: User


def make_user(username: str = "", *, staff: bool = False, password: str = "correct-horse-battery") -> User:
    """A person without a team, who can sign in with the password."""
    name = username or f"person-{next(_numbers)}"
    return User.objects.create_user(name, f"{name}@example.test", password, is_staff=staff, is_superuser=staff)


def make_team(slug: str = "") -> Cast:
    """A team with its whole cast; the outsider owns a team of their own."""
    slug = slug or f"team-{next(_numbers)}"
    people = {role: make_user(f"{slug}-{role}") for role in ("owner", "editor", "operator", "viewer", "outsider")}
    team = accounts.create_team(slug=slug, name=slug.title(), owner=people["owner"])
    for role in (Role.EDITOR, Role.OPERATOR, Role.VIEWER):
        accounts.set_role(team, people[role.value], role, by=people["owner"])
    accounts.create_team(slug=f"{slug}-elsewhere", name="Elsewhere", owner=people["outsider"])
    return Cast(team=team, **people)


def make_token(team: Team, user: User, *scopes: str) -> str:
    """A live API token's secret."""
    return accounts.make_token(team, user, name="test", scopes=scopes).secret


def step(step_id: str = "hello", **keys: Any) -> dict[str, Any]:
    """A scripted step; further keys as in the document."""
    return {"id": step_id, "kind": "scripted", **keys}


def document(slug: str = "", *, steps: list[dict[str, Any]] | None = None, **keys: Any) -> dict[str, Any]:
    """A whole valid document of one scripted step `hello`, or of `steps`; keys replace its parts."""
    return {
        "schema_version": 1,
        "code_layout_version": 1,
        "contract_version": "1.0.44",
        "slug": slug or f"workflow-{next(_numbers)}",
        "title": "A workflow",
        "plan": {"steps": steps or [step()]},
        **keys,
    }


def write_folder(folder: Path, raw: Mapping[str, Any], files: Mapping[str, str | bytes]) -> Path:
    """A workflow's folder as a person keeps it; `files` are relative to it."""
    for name, content in {"workflow.json": json.dumps(raw), **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def default_files(raw: Mapping[str, Any]) -> dict[str, str | bytes]:
    """An entry point for each scripted step, that prints hello."""
    return {f"code/{step['id']}/main.py": HELLO for step in raw["plan"]["steps"] if step.get("kind") == "scripted"}


def make_workflow(
    team: Team,
    by: User,
    raw: Mapping[str, Any] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Workflow:
    """An imported workflow, files and all; without `files` each scripted step prints hello."""
    raw = raw if raw is not None else document()
    with tempfile.TemporaryDirectory() as folder:
        source = write_folder(Path(folder), raw, {**default_files(raw), **(files or {})})
        return workflows.import_workflow(team, by, source)
