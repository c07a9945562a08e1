"""What every admin page of the product is made of: plain lists to look at. Writes are actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

if TYPE_CHECKING:
    PlainAdmin = admin.ModelAdmin[Any]
else:
    PlainAdmin = admin.ModelAdmin  # not subscriptable outside the type checker


class ReadOnlyAdmin(PlainAdmin):
    """Shows rows; adds, changes and deletes none."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
