"""Values at rest: bound to their row, under keys outside the database, never taken for empty."""

from __future__ import annotations

import stat
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as some

from apps.workflows import actions, vault
from apps.workflows.errors import SecretRefused, SecretUnreadable
from apps.workflows.models import Secret
from apps.workflows.vault import Purpose
from config.mfa import MfaAdapter
from engine.redaction import redactor
from tests.factories import document, make_team, make_user, make_workflow

VALUE = "s3cret-value-of-a-team"


@pytest.fixture
def own_data(settings, tmp_path):
    settings.PULSE_DATA = tmp_path
    return tmp_path


@given(data=some.binary(max_size=300))
def test_what_is_sealed_opens_again(data):
    sealed = vault.encrypt(Purpose.RUN_INPUT, "row", data)
    assert vault.decrypt(Purpose.RUN_INPUT, "row", sealed.ciphertext, sealed.key_id) == data
    assert len(data) < 8 or data not in sealed.ciphertext


def test_a_value_moved_to_another_row_or_purpose_does_not_open():
    sealed = vault.encrypt(Purpose.RUN_INPUT, "row", b"data")
    with pytest.raises(SecretUnreadable, match="moved from another row"):
        vault.decrypt(Purpose.RUN_INPUT, "other", sealed.ciphertext, sealed.key_id)
    with pytest.raises(SecretUnreadable):
        vault.decrypt(Purpose.TRIGGER, "row", sealed.ciphertext, sealed.key_id)


def test_a_changed_byte_does_not_open():
    sealed = vault.encrypt(Purpose.RUN_INPUT, "row", b"data")
    changed = bytes([sealed.ciphertext[0] ^ 1]) + sealed.ciphertext[1:]
    with pytest.raises(SecretUnreadable):
        vault.decrypt(Purpose.RUN_INPUT, "row", changed, sealed.key_id)


def test_the_keys_are_in_a_file_that_only_its_user_can_read(own_data):
    vault.encrypt(Purpose.SECRET, "row", b"data")
    file = own_data / "secrets" / "vault.keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_without_its_key_a_value_is_unreadable_and_not_empty(own_data):
    sealed = vault.encrypt(Purpose.SECRET, "row", b"data")
    (own_data / "secrets" / "vault.keys").unlink()
    with pytest.raises(SecretUnreadable, match=sealed.key_id):
        vault.decrypt(Purpose.SECRET, "row", sealed.ciphertext, sealed.key_id)


def test_another_processs_new_key_is_found(own_data):
    old = vault.encrypt(Purpose.SECRET, "row", b"old")
    new_id = vault.new_key()
    new = vault.encrypt(Purpose.SECRET, "row", b"new")
    assert new.key_id == new_id != old.key_id
    assert vault.decrypt(Purpose.SECRET, "row", old.ciphertext, old.key_id) == b"old"


@pytest.mark.django_db
def test_rotation_puts_every_value_under_the_new_key_and_forgets_the_old(own_data):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document(secrets=["TOKEN"]))
    actions.set_secret(cast.team, name="TOKEN", value=VALUE, by=cast.editor)
    person = make_user()
    Authenticator.objects.create(user=person, type="totp", data={"secret": MfaAdapter().encrypt("JBSWY3DP")})
    before = Secret.objects.get().key_id
    out = StringIO()
    call_command("rotate_keys", grace=0, stdout=out)
    row = Secret.objects.get()
    assert row.key_id != before
    assert before not in (own_data / "secrets" / "vault.keys").read_text()
    assert vault.secrets_for(workflow, ["TOKEN"]) == {"TOKEN": VALUE}
    assert MfaAdapter().decrypt(Authenticator.objects.get().data["secret"]) == "JBSWY3DP"
    assert "1 secret moved" in out.getvalue()


@pytest.mark.django_db
def test_a_workflow_reads_only_secrets_it_may_use():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document(secrets=["MINE", "ABSENT"]))
    for name in ("MINE", "OTHER"):
        actions.set_secret(cast.team, name=name, value=f"{VALUE}-{name}", by=cast.editor)
    assert vault.secrets_for(workflow, ["MINE", "ABSENT"]) == {"MINE": f"{VALUE}-MINE"}
    with pytest.raises(ValueError, match="OTHER"):
        vault.secrets_for(workflow, ["OTHER"])


@pytest.mark.django_db
def test_another_teams_secret_of_the_same_name_is_not_found():
    cast, other = make_team(), make_team()
    workflow = make_workflow(cast.team, cast.editor, document(secrets=["TOKEN"]))
    actions.set_secret(other.team, name="TOKEN", value=VALUE, by=other.editor)
    assert vault.secrets_for(workflow, ["TOKEN"]) == {}


@pytest.mark.django_db
def test_the_row_and_the_audit_hold_nothing_of_the_value():
    cast = make_team()
    actions.set_secret(cast.team, name="TOKEN", value=VALUE, by=cast.editor)
    row = Secret.objects.get()
    assert VALUE.encode() not in bytes(row.ciphertext)
    assert VALUE not in str(list(cast.team.audit.values()))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "value", ["", "short", "a" * 7, "with\0nul-in-it", "       x       ", "x" * 40_000, "\ud800abcdefgh"]
)
def test_it_refuses_values_that_cannot_be_masked_or_carried(value):
    cast = make_team()
    with pytest.raises(SecretRefused, match="Nothing was saved") as refused:
        actions.set_secret(cast.team, name="TOKEN", value=value, by=cast.editor)
    assert not value.strip() or value not in refused.value.detail.split()
    assert not Secret.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["", "lower", "1ST", "A-B", "A" * 65, "LD PRELOAD", "A\n"])
def test_it_refuses_names_that_no_environment_takes(name):
    cast = make_team()
    with pytest.raises(SecretRefused):
        actions.set_secret(cast.team, name=name, value=VALUE, by=cast.editor)


@pytest.mark.django_db
def test_a_trailing_line_break_is_saved_and_flagged():
    cast = make_team()
    saved = actions.set_secret(cast.team, name="KEY", value=VALUE + "\n", by=cast.editor)
    assert "line break" in saved.warning
    assert Secret.objects.get().note == saved.warning
    again = actions.set_secret(cast.team, name="KEY", value=VALUE, by=cast.editor)
    assert (again.warning, Secret.objects.get().note) == ("", "")


@pytest.mark.django_db
def test_a_multi_line_value_is_kept_byte_for_byte():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document(secrets=["PEM"]))
    value = "-----BEGIN KEY-----\nabc\ndef\n-----END KEY-----"
    assert actions.set_secret(cast.team, name="PEM", value=value, by=cast.editor).warning == ""
    assert vault.secrets_for(workflow, ["PEM"]) == {"PEM": value}


@pytest.mark.django_db
def test_a_value_that_was_seen_is_masked_in_the_log_from_then_on():
    cast = make_team()
    actions.set_secret(cast.team, name="KEY", value="unusual-canary-value-91", by=cast.editor)
    assert redactor.redact("it failed with unusual-canary-value-91!") == "it failed with ***!"
