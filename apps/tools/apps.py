from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class ToolsConfig(AppConfig):
    name = "apps.tools"

    def ready(self) -> None:
        autodiscover_modules("tools")
