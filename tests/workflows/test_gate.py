"""Who saves code is alone; who starts an attempt is among others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from apps.workflows import gate, places
from apps.workflows.actions import import_workflow
from apps.workflows.errors import GateBusy
from tests.factories import document, make_team, make_workflow
from tests.workflows import archives

pytestmark = pytest.mark.django_db


@pytest.fixture
def workflow():
    cast = make_team()
    return make_workflow(cast.team, cast.editor, document("gated"))


def test_several_attempts_may_start_at_once(workflow):
    with gate.shared(workflow), gate.shared(workflow, patience_s=0):
        pass


def test_nothing_is_saved_while_an_attempt_starts(workflow):
    with (
        gate.shared(workflow),
        pytest.raises(GateBusy, match="Nothing was changed"),
        gate.exclusive(workflow, patience_s=0.05),
    ):
        pass


def test_no_attempt_starts_while_code_is_saved(workflow):
    with gate.exclusive(workflow), pytest.raises(GateBusy), gate.shared(workflow, patience_s=0.05):
        pass


def test_it_is_taken_as_soon_as_it_is_free(workflow):
    taken = threading.Event()

    def save() -> None:
        with gate.exclusive(workflow):
            taken.set()

    with gate.shared(workflow):
        saver = threading.Thread(target=save)
        saver.start()
        time.sleep(0.05)
        assert not taken.is_set()
    saver.join(10)
    assert taken.is_set()


def test_it_ends_with_a_process_that_is_killed(workflow):
    code = (
        "import fcntl, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with gate.shared(workflow):
        pass
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(gate.path_of(workflow))], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GateBusy), gate.shared(workflow, patience_s=0.05):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with gate.shared(workflow, patience_s=5):
        pass


def test_an_import_waits_for_the_gate_and_then_changes_nothing(workflow, monkeypatch):
    monkeypatch.setattr(gate, "PATIENCE_S", 0.05)
    monkeypatch.setattr(gate.exclusive.__wrapped__, "__kwdefaults__", {"patience_s": 0.05, "given_up": gate.never})
    with gate.shared(workflow), pytest.raises(GateBusy):
        import_workflow(
            workflow.team, workflow.owner, archives.zipped({"code/hello/main.py": "new"}, raw=document("gated"))
        )
    assert (places.places_of(workflow).code / "hello" / "main.py").read_text() == 'print("hello")\n'


def test_the_lock_cannot_be_replaced_by_a_link(workflow, tmp_path):
    path = gate.path_of(workflow)
    path.unlink(missing_ok=True)
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(OSError, match="symbolic links"), gate.shared(workflow):
        pass
    assert not (tmp_path / "elsewhere").exists()
