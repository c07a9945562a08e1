"""What people press: it is done by the actions, and a refusal is said on the page it was asked from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from pydantic import JsonValue

from apps.accounts.models import User
from apps.dashboard.forms import VariableForm, typed
from apps.runs import inputs
from apps.runs.models import Run, StepRun
from apps.webhooks.models import Trigger
from apps.workflows import vault
from apps.workflows.models import Group, Variable, Workflow
from tests.browser.demo import Demo

AsUser = Callable[[User], Client]
FLOW = "/t/payments/workflows/market-checks/"
FORM = {"group": "europe", "p.check-market.market": '"bonds"', "p.check-market.limit": "7"}


def newest(slug: str = "market-checks") -> Run:
    return Run.objects.filter(workflow__slug=slug).latest("queued_at")


def test_the_form_starts_a_run_with_typed_parameters(demo: Demo, as_user: AsUser) -> None:
    response = as_user(demo.cast.operator).post(f"{FLOW}start/", FORM)
    run = newest()
    assert response["Location"] == f"/runs/{run.pk}/"
    assert (run.entry_path, run.group, run.initiated_by) == ("manual", "europe", "payments-operator")
    assert inputs.read(run).parameters == {"check-market": {"market": "bonds", "limit": 7}}


def test_the_form_offers_the_last_values_again(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.operator)
    client.post(f"{FLOW}start/", FORM)
    page = client.get(FLOW).text
    assert '<option value="&quot;bonds&quot;" selected>' in page
    assert 'value="7"' in page
    assert page.count("From the last run.") == 2
    assert "From the last run." not in client.post(f"{FLOW}start/", FORM | {"group": "mars"}).text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"p.check-market.limit": "many"}, "Type a whole number, such as 5."),
        ({"p.check-market.market": '"gold"'}, "Select a valid choice"),
        ({"group": "mars"}, "Select a valid choice"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field_and_nothing_starts(
    demo: Demo, as_user: AsUser, changed: dict[str, str], said: str
) -> None:
    before = Run.objects.count()
    response = as_user(demo.cast.operator).post(f"{FLOW}start/", FORM | changed)
    assert response.status_code == 422
    assert said in response.text
    assert Run.objects.count() == before


def test_a_refusal_of_the_platform_is_shown_and_nothing_starts(demo: Demo, as_user: AsUser) -> None:
    Workflow.objects.update(contract_version="1.0.1")
    before = Run.objects.count()
    response = as_user(demo.cast.operator).post(f"{FLOW}start/", FORM)
    assert response.status_code == 422
    assert "No run was made" in response.text
    assert Run.objects.count() == before


def test_cancel_of_a_queued_run_ends_it(demo: Demo, as_user: AsUser) -> None:
    as_user(demo.cast.operator).post(f"/runs/{demo.runs['held']}/cancel/")
    assert Run.objects.get(pk=demo.runs["held"]).status == "cancelled"


def test_cancel_of_a_running_one_is_shown_as_cancelling(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.operator)
    client.post(f"/runs/{demo.runs['running']}/cancel/")
    assert ">cancelling</span>" in client.get(f"/runs/{demo.runs['running']}/").text.replace("Cancelling", "")


def test_a_finished_run_is_not_cancelled_and_says_so(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.operator)
    response = client.post(f"/runs/{demo.runs['good']}/cancel/", follow=True)
    assert 'class="notice is-failed"' in response.text
    assert Run.objects.get(pk=demo.runs["good"]).status == "succeeded"


def test_rerun_opens_the_new_run_which_links_the_old(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.operator)
    page = client.post(f"/runs/{demo.runs['loud']}/rerun/", follow=True).text
    assert Run.objects.get(rerun_of=demo.runs["loud"]).status == "queued"
    assert f'href="/runs/{demo.runs["loud"]}/"' in page


def test_htmx_is_sent_on_by_a_header(demo: Demo, as_user: AsUser) -> None:
    response = as_user(demo.cast.operator).post(f"/runs/{demo.runs['held']}/cancel/", headers={"HX-Request": "true"})
    assert response["HX-Redirect"] == f"/runs/{demo.runs['held']}/"


@pytest.mark.parametrize(
    ("choice", "status"), [("mark_succeeded", "succeeded"), ("mark_failed", "failed"), ("run_again", "pending")]
)
def test_a_person_decides_how_an_unknown_step_ended(demo: Demo, as_user: AsUser, choice: str, status: str) -> None:
    client = as_user(demo.cast.operator)
    assert client.get(f"/runs/{demo.runs['lost']}/").text.count('class="choice"') == 3
    client.post(f"/runs/{demo.runs['lost']}/settle/", {"step_id": "check-market", "choice": choice})
    assert StepRun.objects.get(run=demo.runs["lost"]).status == status


def test_a_secret_is_shown_once_and_never_again(demo: Demo, as_user: AsUser) -> None:
    client, trigger = as_user(demo.cast.editor), Trigger.objects.get(kind="bearer", workflow__slug="pr-review")
    answer = client.post(f"/triggers/{trigger.pk}/rotate/")
    secret = answer.text.split("data-secret-once>")[1].split("<")[0]
    assert secret.startswith("pht_")
    assert "no-store" in answer["Cache-Control"]
    assert secret not in client.get("/t/payments/workflows/pr-review/triggers/").text


def test_a_secrets_value_is_written_and_shown_nowhere(demo: Demo, as_user: AsUser) -> None:
    flow = demo.workflow
    flow.secret_names = ["GITHUB_TOKEN"]
    flow.save()
    client, base = as_user(demo.cast.editor), "/t/payments/workflows/pr-review/"
    client.post(f"{base}secrets/set/", {"name": "GITHUB_TOKEN", "value": "ghp-a-long-value"})
    assert vault.secrets_for(flow, ["GITHUB_TOKEN"]) == {"GITHUB_TOKEN": "ghp-a-long-value"}
    page = client.get(f"{base}variables/").text
    assert "ghp-a-long-value" not in page
    assert "GITHUB_TOKEN" in page


def test_a_variable_is_saved_as_the_json_it_is(demo: Demo, as_user: AsUser) -> None:
    as_user(demo.cast.editor).post(f"{FLOW}variables/set/", {"name": "TOLERANCE_PERCENT", "value": "4.5"})
    assert Variable.objects.get(name="TOLERANCE_PERCENT").value == 4.5


def test_a_groups_values_are_saved_row_by_row_as_what_they_are(demo: Demo, as_user: AsUser) -> None:
    client, group = as_user(demo.cast.editor), Group.objects.get(workflow__slug="market-checks", name="europe")
    for position, name in enumerate(("AS_TEXT", "LEFT_OUT"), 5):
        Variable.objects.create(workflow=group.workflow, name=name, value="x", position=position)
    sent = {"value.AS_TEXT": '"5"', "value.TOLERANCE_PERCENT": "5", "value.LEFT_OUT": ""}
    client.post(f"{FLOW}groups/set/", {"name": "europe", "enabled": "on", **sent})
    assert group.workflow.groups.get(name="europe").values == {"AS_TEXT": "5", "TOLERANCE_PERCENT": 5}
    page = client.get(f"{FLOW}variables/").text
    assert 'name="value.AS_TEXT" value="&quot;5&quot;"' in page
    assert 'name="value.TOLERANCE_PERCENT" value="5"' in page


@pytest.mark.parametrize(
    "value", ["text", "5", "true", "", "[x", " a ", "a\nb", "null", 5, 1.5, None, True, [1], {"a": "ü"}]
)
def test_a_value_is_typed_so_that_it_is_read_back_as_the_same(value: JsonValue) -> None:
    form = VariableForm({"name": "A", "value": typed(value)})
    assert form.is_valid(), form.errors
    assert (form.cleaned_data["value"], type(form.cleaned_data["value"])) == (value, type(value))


@pytest.mark.parametrize(
    ("path", "sent", "kept"),
    [
        ("variables", {"name": "lower case", "value": "kept text"}, 'value="kept text"'),
        ("groups", {"name": "europe", "value.TOLERANCE_PERCENT": "[1"}, 'value="[1"'),
        ("secrets", {"name": "MARKET_KEY", "value": "short"}, "<option selected>MARKET_KEY</option>"),
    ],
)
def test_a_form_of_variables_that_was_refused_stays_open_as_typed(
    demo: Demo, as_user: AsUser, path: str, sent: dict[str, str], kept: str
) -> None:
    Workflow.objects.filter(slug="market-checks").update(secret_names=["MARKET_KEY"])
    answer = as_user(demo.cast.editor).post(f"{FLOW}{path}/set/", sent)
    assert answer.status_code == 422
    assert kept in answer.text
    assert (
        answer.text.count('<details class="fold-box needs-edit" open>')
        + answer.text.count('<details class="fold-box" open>')
        == 1
    )
    assert 'value="short"' not in answer.text


def test_a_workflow_without_secrets_says_how_one_is_added(demo: Demo, as_user: AsUser) -> None:
    Workflow.objects.filter(slug="market-checks").update(secret_names=[])
    page = as_user(demo.cast.editor).get(f"{FLOW}variables/").text
    assert "It names no secrets" in page
    assert "import it; then set its value here" in page


def test_a_trigger_with_a_taken_name_is_refused_at_the_form(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.editor)
    taken = Trigger.objects.get(kind="bearer", workflow__slug="pr-review")
    response = client.post("/t/payments/workflows/pr-review/triggers/new/", {"kind": "bearer", "name": taken.name})
    assert "There is a trigger" in response.text
    assert Trigger.objects.filter(workflow=demo.workflow).count() == 2


def test_hook_addresses_are_of_the_configured_base_whatever_host_was_asked(demo: Demo, as_user: AsUser) -> None:
    client = as_user(demo.cast.editor)
    page = client.get("/t/payments/workflows/pr-review/triggers/", headers={"host": "localhost"}).text
    assert "http://127.0.0.1:8000/hooks/" in page
    assert "localhost" not in page


def test_a_form_without_its_token_does_nothing(demo: Demo) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(demo.cast.owner)
    response = client.post(f"/runs/{demo.runs['held']}/cancel/")
    assert response.status_code == 403
    assert "This form was too old" in response.text
    assert Run.objects.get(pk=demo.runs["held"]).status == "queued"
