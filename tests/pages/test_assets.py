"""What pages are made of: collected as in production, no address of others, licences beside what is not ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.template.loader import get_template
from django.test import override_settings

STATIC = Path(settings.BASE_DIR) / "static"
TEMPLATES = Path(settings.BASE_DIR) / "templates"
MANIFEST = {"staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}}


def test_every_reference_of_a_sheet_is_there_when_it_is_collected(tmp_path: Path) -> None:
    with override_settings(STATIC_ROOT=tmp_path, STORAGES={**settings.STORAGES, **MANIFEST}):
        call_command("collectstatic", "--noinput", verbosity=0)
    assert (tmp_path / "staticfiles.json").exists()


@pytest.mark.parametrize(
    "file", sorted(STATIC.glob("css/*.css")) + sorted(STATIC.glob("js/*.js")), ids=lambda file: file.name
)
def test_our_own_files_name_no_other_host(file: Path) -> None:
    assert re.findall(r"https?://(?!www\.w3\.org)", file.read_text()) == []


def test_what_is_not_ours_has_its_licence_beside_it() -> None:
    for folder in (STATIC / "vendor").iterdir():
        if folder.is_dir():
            assert list(folder.glob("LICENSE*")), folder
            assert f"`{folder.name}/`" in (STATIC / "vendor" / "README.md").read_text()


def templates() -> list[str]:
    return sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.html"))


@pytest.mark.parametrize("name", templates())
def test_a_template_parses_and_trusts_nothing(name: str) -> None:
    text = (TEMPLATES / name).read_text()
    get_template(name)
    assert not re.search(r"autoescape off|\|safe\b|\|safeseq|hx-on|\bstyle=|<style|<script(?! src)|js:", text)


def test_html_is_trusted_in_one_place_only() -> None:
    trusting = [
        str(path.relative_to(settings.BASE_DIR))
        for folder in ("apps", "platform")
        for path in (Path(settings.BASE_DIR) / folder).rglob("*.py")
        if re.search(r"mark_safe\(|SafeString\(|safestring\.mark", path.read_text())
    ]
    assert trusting == ["apps/runs/markdown.py"]  # Markdown, after nh3


def test_a_fragment_is_named_with_an_underscore_and_a_page_is_not() -> None:
    for path in TEMPLATES.rglob("*.html"):
        whole = "{% extends" in path.read_text() or "<!doctype" in path.read_text()
        if path.relative_to(TEMPLATES).parts[0] in {"allauth", "admin", "account"}:
            continue
        assert path.name.startswith("_") != whole, path
