from __future__ import annotations

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "apps.runs"

    def ready(self) -> None:
        from apps.runs import calls, queue, rejections
        from apps.tools import diagnostics, ledger

        queue.harden()
        if rejections.tell_runs not in diagnostics.on_rejected:
            diagnostics.on_rejected.append(rejections.tell_runs)
        if calls.tell_run not in ledger.on_imported:
            ledger.on_imported.append(calls.tell_run)
