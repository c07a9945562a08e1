"""From a payload to what a run starts with."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.runs.models import Run
from apps.webhooks.errors import BadMapping
from apps.webhooks.mappings import look_up, map_payload
from engine.document import Mappings
from tests.factories import document, step
from tests.webhooks.senders import make_hook

KEYS = st.text(st.characters(blacklist_characters=".", blacklist_categories=["Cs"]), min_size=1, max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


def paths(value, so_far=()):
    """Every path of a JSON value, with what stands there."""
    if so_far:
        yield so_far, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*so_far, str(key)))


@given(JSON)
def test_every_value_of_a_payload_is_found_at_its_path(payload):
    for path, value in paths(payload):
        assert look_up(payload, ".".join(path)) == value


@given(JSON, KEYS)
def test_a_path_that_leads_nowhere_is_a_lookup_error_and_nothing_else(payload, key):
    with pytest.raises(LookupError):
        look_up({"there": payload}, f"not {key}.{key}")


@given(JSON, st.text(max_size=20))
def test_any_source_either_finds_or_says_so(payload, source):
    with contextlib.suppress(LookupError):
        look_up(payload, source)


@given(JSON, st.dictionaries(KEYS, st.text(max_size=5), max_size=3), KEYS)
def test_a_group_is_text_or_a_bad_mapping_whatever_comes(payload, values, source):
    mapping = {"group": {"source": source, "values": values}}
    with contextlib.suppress(BadMapping):
        assert isinstance(map_payload(mapping, payload).group, str)


@given(JSON, st.sampled_from(["variables", "parameters", "routes"]), st.none() | st.just({}), KEYS)
def test_the_others_are_objects_or_a_bad_mapping_whatever_comes(payload, name, default, source):
    mapping = {name: {"source": source} | ({} if default is None else {"default": default})}
    try:
        mapped = map_payload(mapping, payload)
    except BadMapping:
        return
    assert isinstance(getattr(mapped, name), dict)


@given(JSON)
def test_without_mappings_a_payload_decides_nothing(payload):
    assert map_payload({}, payload) == map_payload(Mappings().model_dump(), payload) == map_payload({}, None)


def test_values_translate_what_was_found():
    mapping = {"group": {"source": "region.code", "values": {"EU": "europe", "7": "asia", "true": "americas"}}}
    assert map_payload(mapping, {"region": {"code": "EU"}}).group == "europe"
    assert map_payload(mapping, {"region": {"code": 7}}).group == "asia"
    assert map_payload(mapping, {"region": {"code": True}}).group == "americas"


def test_a_default_stands_in_for_what_is_missing_or_not_in_the_values():
    mapping = {"group": {"source": "region", "values": {"EU": "europe"}, "default": "americas"}}
    assert map_payload(mapping, {}).group == "americas"
    assert map_payload(mapping, {"region": "MARS"}).group == "americas"


def test_without_a_default_what_is_missing_is_a_bad_mapping():
    with pytest.raises(BadMapping):
        map_payload({"group": {"source": "region"}}, {})


def test_a_null_default_asks_for_nothing():
    assert map_payload({"group": {"source": "region", "default": None}}, {}).group == ""


def markets(**keys):
    return make_hook(
        kind="bearer",
        raw=document(
            steps=[
                step(
                    "check",
                    script_parameters={
                        "market": {"type": "string", "description": "x", "required": True, "enum": ["us", "eu"]},
                        "limit": {"type": "integer", "description": "x", "default": 20},
                    },
                )
            ],
            variables=[{"name": "BASE_URL", "value": "a"}, {"name": "OTHER", "value": "b"}],
        ),
        **keys,
    )


@pytest.mark.django_db
@pytest.mark.databases
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"p": {"check": {"market": "us"}}}, 202),
        ({"p": {"check": {"market": "us", "limit": 5}}}, 202),
        ({"p": {"check": {"market": "mars"}}}, 400),
        ({"p": {"check": {"market": "us", "limit": True}}}, 400),
        ({"p": {"check": {"market": "us", "more": 1}}}, 400),
        ({"p": {"nowhere": {"market": "us"}}}, 400),
        ({"p": {"check": {}}}, 400),
        ({"p": ["check"]}, 400),
        ({}, 400),
    ],
)
def test_mapped_parameters_are_checked_before_there_is_a_run(body, status):
    sender = markets(mappings={"parameters": {"source": "p"}})
    assert sender.post(body).status_code == status
    assert Run.objects.count() == (status == 202)


@pytest.mark.django_db
@pytest.mark.databases
def test_mapped_variables_are_held_to_the_triggers_list():
    values = {"check": {"market": "us"}}
    sender = markets(
        mappings={"variables": {"source": "v"}, "parameters": {"source": "p"}}, allowed_variables=["BASE_URL"]
    )
    assert sender.post({"v": {"BASE_URL": "x"}, "p": values}).status_code == 202
    assert sender.post({"v": {"OTHER": "x"}, "p": values}).status_code == 400


@pytest.mark.django_db
@pytest.mark.databases
def test_mapped_routes_are_checked_before_there_is_a_run():
    raw = document(
        steps=[
            {
                "id": "route",
                "kind": "branch",
                "question": "?",
                "routes": [{"route_id": "a", "next_step_id": "one"}, {"route_id": "b", "next_step_id": "end"}],
            },
            step("one"),
        ]
    )
    sender = make_hook(kind="bearer", raw=raw, mappings={"routes": {"source": "r"}})
    assert sender.post({"r": {"route": "a"}}).status_code == 202
    assert sender.post({"r": {"route": "c"}}).status_code == 400
    assert sender.post({"r": {"one": "a"}}).status_code == 400
