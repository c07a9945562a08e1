"""The reference is whole: each address, command, option, setting and tool has its place there, and no other has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.urls import URLPattern, get_resolver

from apps.tools import catalogue
from config.api import api

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
README = (ROOT / "README.md").read_text()
OURS = {name: app for name, app in get_commands().items() if app == "config" or app.startswith("apps.")}
OF_DJANGO = set(BaseCommand().create_parser("manage.py", "any")._option_string_actions)


def headings(page: str, level: int = 2) -> list[str]:
    found = re.findall(rf"^{'#' * level} (.+)$", (REFERENCE / page).read_text(), re.MULTILINE)
    return [name.strip("`") for name in found]


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", (REFERENCE / page).read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def options(name: str) -> set[str]:
    command = load_command_class(OURS[name], name)
    assert isinstance(command, BaseCommand)
    return set(command.create_parser("manage.py", name)._option_string_actions) - OF_DJANGO


def prefixes() -> set[str]:
    """The first part of each address the product answers at."""
    found = set()
    for top in get_resolver().url_patterns:
        inner = [top] if isinstance(top, URLPattern) or str(top.pattern) else top.url_patterns
        for pattern in inner:
            route = str(pattern.pattern)
            found.add("/" + (route if route == "api/v1/" else re.sub(r"^([^/]*/?).*", r"\1", route)))
    return found


def test_each_address_has_its_row() -> None:
    written = set(re.findall(r"^\| `(/[^`]*)` \|", (REFERENCE / "addresses.md").read_text(), re.MULTILINE))
    assert written - {"/ws/live", "/static/"} == prefixes()
    assert "ws/live" in (ROOT / "platform/config/asgi.py").read_text() + (ROOT / "apps/runs/live/urls.py").read_text()


def test_each_route_of_the_api_has_its_row() -> None:
    written = re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", (REFERENCE / "api.md").read_text(), re.MULTILINE)
    described = api.get_openapi_schema(path_prefix="")["paths"]
    assert sorted(written) == sorted(f"{method.upper()} {path}" for path, ways in described.items() for method in ways)


def test_each_command_has_its_heading() -> None:
    assert sorted(headings("commands.md")) == sorted(OURS)


@pytest.mark.parametrize("name", sorted(OURS))
def test_each_option_of_a_command_has_its_row(name: str) -> None:
    rows = "\n".join(line for line in sections("commands.md")[name].splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(--[a-z-]+)`", rows)) == options(name)


def test_each_setting_has_its_heading() -> None:
    read = "".join((ROOT / "platform/config" / name).read_text() for name in ("settings.py", "before.py"))
    names = set(re.findall(r'env\.[a-z]+\(\s*"([A-Z_]+)"', read))
    assert sorted(headings("settings.md", 3)) == sorted(names)


def test_no_other_part_of_the_product_reads_the_environment_for_settings() -> None:
    read = re.compile(r'environ(?:\.get\(|\[)\s*"((?:PULSE|DATABASE|REDIS)_[A-Z_]+)"')
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in ("apps", "platform/config", "platform/engine")
        for path in (ROOT / folder).rglob("*.py")
        for name in read.findall(path.read_text())
    }
    assert found <= {("platform/config/starting.py", "PULSE_DATA")}, "which only tells whether it was set"


def test_each_tool_has_its_heading() -> None:
    assert set(catalogue.names()) <= set(headings("tools.md"))


def test_the_commands_of_the_readme_exist_with_their_options() -> None:
    lines = re.findall(r"manage\.py ([a-z_]+)([^#\n]*)", README)
    assert {name for name, _ in lines} >= {"doctor", "demo", "import_workflow", "run_workflow", "create_token"}
    for name, rest in lines:
        assert name in get_commands(), name
        assert name not in OURS or set(re.findall(r"--[a-z-]+", rest)) <= options(name), name


def test_the_targets_of_the_readme_are_those_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)) == targets


def test_the_readme_leads_to_pages_that_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
