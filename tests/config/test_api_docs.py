"""The API describes itself, under the same content security policy as every page."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

pytestmark = pytest.mark.django_db


def test_the_description_names_every_route_with_its_errors_and_its_token():
    spec = Client().get("/api/v1/openapi.json").json()
    assert {"/api/v1/workflows", "/api/v1/workflows/import", "/api/v1/workflows/{slug}/export"} <= set(spec["paths"])
    problem = spec["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == {"type", "title", "status", "code", "detail", "fields", "request_id"}
    listing = spec["paths"]["/api/v1/workflows"]["get"]
    assert "401" in listing["responses"]
    assert listing["security"]


def test_operations_have_names_of_their_own():
    spec = Client().get("/api/v1/openapi.json").json()
    names = [operation["operationId"] for path in spec["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_the_page_loads_only_files_of_ours_and_runs_nothing_inline():
    answer = Client().get("/api/v1/docs")
    text = answer.content.decode()
    assert answer.status_code == 200
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    scripts = re.findall(r"<script([^>]*)>", text)
    assert all("src=" in script or 'type="application/json"' in script for script in scripts)
    assert not re.search(r"<style|\son\w+=|\sstyle=", text)
    for source in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert source.startswith("/static/"), source
        assert finders.find(source.removeprefix("/static/")), source


def test_an_address_that_is_not_there_is_a_404_of_the_api():
    assert Client().get("/api/v1/nothing-here").status_code == 404
