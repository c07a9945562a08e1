"""`manage.py up`: the whole product on one machine, started in order, seen to, and ended whole."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from urllib.error import URLError
from urllib.request import urlopen

from django.conf import settings
from django.db import connections

from apps.runs import fitness, following
from apps.runs.timing import CUT_S
from apps.webhooks import demo
from apps.webhooks.models import Trigger
from config import before, services, starting
from config.children import Child, log_file

CANNOT_SANDBOX = 3
READY_S = 60.0
TICK_S = 0.1
GRACE_S = 5.0


class Up:
    """`say` prints a line for people. `with_demo` lays out and runs the demonstration on a fresh database."""

    def __init__(self, say: Callable[[str], None], *, with_demo: bool) -> None:
        self.say = say
        self.with_demo = with_demo
        self.web = Child("web")
        self.worker = Child("worker", "--with-parent", gives_signs=True)
        self._sign_in = ""  # how the admin who was just made signs in: said again at the end of a first start
        self._signals = 0

    def run(self) -> int:
        """Until Ctrl-C or SIGTERM; the exit code. Raises UpRefused before anything is changed."""
        before.check_port(settings.PULSE_HOST, settings.PULSE_PORT)
        with starting.claim_data():
            if moved := starting.moved_data():
                self.say(f"Data: {moved} (steps could not enter a folder below a closed home).")
            services.check()
            barred = starting.lay_out() or fitness.refusal()
            trigger = self._first_time() if self.with_demo else None
            connections.close_all()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, self._on_signal)
            try:
                self._serve(barred, trigger)
            finally:
                self._stop()
        return CANNOT_SANDBOX if barred else 0

    def _serve(self, barred: str, trigger: Trigger | None) -> None:
        self.web.start()
        self.worker.start()
        if self._web_is_ready():
            self._greet(barred)
            if trigger is not None and not barred:
                self._demonstrate(trigger)
            self._close()
        while not self._signals:
            self._see_to_children()
            time.sleep(TICK_S)

    def _first_time(self) -> Trigger | None:
        """The admin, and the demo team with its workflows, each made once; goes on where a start was cut short."""
        if not demo.unfinished():
            return None
        user = starting.first_admin(self._say_sign_in)
        try:
            return demo.prepare(user) if user else None
        except demo.DemoFailed as wrong:
            self.say(str(wrong))
            return None

    def _web_is_ready(self) -> bool:
        deadline = time.monotonic() + READY_S
        while not self._signals and time.monotonic() < deadline:
            if _answers(f"{demo.local_url()}/healthz"):
                return True
            self._see_to_children()
            time.sleep(TICK_S / 2)
        if not self._signals:
            self.say(f"Web does not answer after {READY_S:.0f} s; its own words are above. It goes on being tried.")
        return False

    def _greet(self, barred: str) -> None:
        self.say(f"Dashboard: {settings.PULSE_BASE_URL}/")
        self.say(f"Admin:     {settings.PULSE_BASE_URL}/admin/")
        self.say(f"Log:       {settings.PULSE_LOG or log_file()}")
        if barred:
            self.say(f"This host cannot confine steps, so none is started. {barred}")
            self.say("Run `manage.py doctor` for the whole picture.")

    def _demonstrate(self, trigger: Trigger) -> None:
        try:
            self.say("Sending a real signed GitHub pull_request event to the demo workflow's hook ...")
            run = following.follow(demo.send(trigger).run_id, self._say_and_look, patience_s=READY_S)
            following.tell_result(run, self.say)
        except (demo.DemoFailed, following.NotTaken) as wrong:
            self.say(str(wrong))
        except _Interrupted:
            return
        finally:
            connections.close_all()

    def _close(self) -> None:
        """The last lines of a start: what a person goes on with."""
        if self._signals:
            return
        if self._sign_in:
            self.say(self._sign_in)
        self.say(f"Pulse serves at {settings.PULSE_BASE_URL}/; Ctrl-C ends it.")

    def _say_sign_in(self, line: str) -> None:
        self._sign_in = line
        self.say(line)

    def _say_and_look(self, line: str) -> None:
        if self._signals:
            raise _Interrupted
        self.say(line)

    def _see_to_children(self) -> None:
        for child in (self.web, self.worker):
            if told := child.see_to_it():
                self.say(told)

    def _stop(self) -> None:
        """Ends every process. A second signal ends at once what would have been drained."""
        self.say("Stopping: running steps may end on their own for a while; Ctrl-C again ends them now.")
        before = self._signals
        self.web.ask_to_end()
        self.worker.ask_to_end()
        deadline = time.monotonic() + settings.PULSE_DRAIN_S + CUT_S + GRACE_S
        hurried = False
        while (self.web.alive or self.worker.alive) and time.monotonic() < deadline:
            if self._signals > before and not hurried:
                hurried = True
                self.worker.ask_to_end()
                deadline = min(deadline, time.monotonic() + CUT_S + GRACE_S)
            time.sleep(TICK_S / 2)
        for child in (self.web, self.worker):
            child.end()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


class _Interrupted(Exception):
    """A signal came while the demonstration was followed."""
