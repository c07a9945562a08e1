"""What no browser of ours sends: it is refused in words, and never a fault of ours."""

from __future__ import annotations

import json

import pytest
from django.db import OperationalError
from django.test import Client

from apps.runs.models import Run
from apps.workflows.models import Group, Variable
from tests.factories import Cast, document, make_team, make_token, make_workflow
from tests.runs.starts import start

pytestmark = [pytest.mark.django_db, pytest.mark.databases]


@pytest.fixture
def cast() -> Cast:
    return make_team()


def browser(cast: Cast) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(cast.owner)
    return client


class Caller:
    def __init__(self, cast: Cast) -> None:
        self.headers = {"Authorization": f"Bearer {make_token(cast.team, cast.owner, 'read', 'run')}"}
        self.client = Client(raise_request_exception=False)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict]:
        answer = self.client.generic(method, f"/api/v1{path}", body, "application/json", headers=self.headers)
        told = json.loads(answer.content)
        if answer.status_code >= 400:
            assert answer["Content-Type"] == "application/problem+json"
            assert told["request_id"] == answer["X-Request-Id"]
            assert (told["status"], bool(told["title"])) == (answer.status_code, True)
        return answer.status_code, told


@pytest.fixture
def caller(cast: Cast) -> Caller:
    return Caller(cast)


@pytest.mark.parametrize("path", ["/runs/?status=%00", "/deliveries/?verdict=a%00b", "/?x=%00"])
def test_a_nul_in_a_query_of_a_page_is_a_400(cast: Cast, path: str) -> None:
    assert browser(cast).get(path).status_code == 400


def test_a_nul_in_an_address_is_a_404(cast: Cast) -> None:
    assert browser(cast).get("/t/a%00b/workflows/").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [("/runs?status=%00", 400), ("/workflows/ec%00ho", 404), ("/deliveries?workflow=%00", 400)],
)
def test_a_nul_in_an_address_of_the_api_is_refused_in_its_shape(caller: Caller, path: str, status: int) -> None:
    assert caller.ask("GET", path)[0] == status


@pytest.mark.parametrize("body", [b'{"group": "a\\u0000b"}', b'{"variables": {"a\\u0000": 1}}'])
def test_a_nul_in_a_text_of_a_body_is_refused(cast: Cast, caller: Caller, body: bytes) -> None:
    workflow = make_workflow(cast.team, cast.owner)
    status, told = caller.ask("POST", f"/workflows/{workflow.slug}/runs", body)
    assert (status, told["code"]) == (400, "nul_in_text")
    assert not Run.objects.exists()


@pytest.mark.parametrize("body", [b"{", b"[" * 3000, b'{"group": NaN}', b'{"group": "a", "group": "b"}', b"\xff"])
def test_a_body_that_is_no_json_says_so_with_its_own_code(cast: Cast, caller: Caller, body: bytes) -> None:
    workflow = make_workflow(cast.team, cast.owner)
    status, told = caller.ask("POST", f"/workflows/{workflow.slug}/runs", body)
    assert (status, told["code"]) == (400, "not_json")
    assert "JSON" in told["detail"]


def test_an_unknown_field_names_those_there_are(cast: Cast, caller: Caller) -> None:
    workflow = make_workflow(cast.team, cast.owner)
    status, told = caller.ask("POST", f"/workflows/{workflow.slug}/runs", b'{"grup": "a"}')
    assert (status, told["code"]) == (422, "not_valid")
    assert told["fields"][0]["path"] == "grup"
    assert "group, human_inputs, parameters, route_selections, variables" in told["fields"][0]["message"]


def test_an_unknown_address_and_a_wrong_method_have_the_shape_of_every_error(caller: Caller) -> None:
    assert caller.ask("GET", "/no-such-route")[1]["code"] == "not_found"
    assert caller.ask("DELETE", "/runs")[1]["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/runs?status=sleeping", "/deliveries?verdict=maybe", "/runs?limit=0"])
def test_a_filter_that_nothing_can_fit_is_a_400_that_names_it(caller: Caller, path: str) -> None:
    status, told = caller.ask("GET", path)
    assert status == 400
    assert told["fields"][0]["path"] == path.partition("?")[2].partition("=")[0]


@pytest.mark.parametrize("query", ["limit=-5", "limit=0", "limit=100000", "after=-1", "after=99999999999999999999"])
def test_events_out_of_their_range_are_a_400(cast: Cast, caller: Caller, query: str) -> None:
    run = start(make_workflow(cast.team, cast.owner))
    status, told = caller.ask("GET", f"/runs/{run.pk}/events?{query}")
    assert (status, told["fields"][0]["path"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize(("name", "field"), [("variables", "value"), ("groups", "value.V")])
@pytest.mark.parametrize("value", ["[" * 3000, '{"a": 1, "a": 2}', '{"a": "\\u0000"}'])
def test_json_that_can_not_be_kept_is_said_on_the_page(cast: Cast, name: str, field: str, value: str) -> None:
    workflow = make_workflow(cast.team, cast.owner, document(variables=[{"name": "V", "value": "as it was"}]))
    form = {"name": "V", field: value}
    page = browser(cast).post(f"/t/{cast.team.slug}/workflows/{workflow.slug}/{name}/set/", form, follow=True)
    assert page.status_code in {400, 422}
    assert "Nothing was saved" in page.content.decode() or "no JSON that can be kept" in page.content.decode()
    assert Variable.objects.get().value == "as it was"
    assert not Group.objects.exists()


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another writer held SQLite for all of the time-out."""

    def refuse(*_arguments: object, **_named: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("apps.runs.actions.start_run", refuse)
    monkeypatch.setattr("apps.workflows.actions.set_variable", refuse)


@pytest.mark.usefixtures("locked")
def test_a_busy_database_is_a_503_that_says_when_to_try_again(cast: Cast, caller: Caller) -> None:
    workflow = make_workflow(cast.team, cast.owner)
    status, told = caller.ask("POST", f"/workflows/{workflow.slug}/runs", b"{}")
    assert (status, told["code"]) == (503, "busy")
    page = browser(cast).post(
        f"/t/{cast.team.slug}/workflows/{workflow.slug}/variables/set/", {"name": "V", "value": "x"}
    )
    assert (page.status_code, page["Retry-After"]) == (503, "5")
    assert "Try again" in page.text
