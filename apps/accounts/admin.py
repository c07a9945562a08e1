"""People, teams, members, tokens and the audit trail. A write here is the same action as anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from apps.accounts import actions
from apps.accounts.admin_base import PlainAdmin, ReadOnlyAdmin
from apps.accounts.errors import Refused
from apps.accounts.models import ApiToken, Audit, Membership, Team, User
from apps.accounts.roles import Role

if TYPE_CHECKING:
    _UserAdmin = UserAdmin[User]
else:
    _UserAdmin = UserAdmin  # not subscriptable outside the type checker


@admin.register(User)
class PersonAdmin(_UserAdmin):
    list_display = ["username", "email", "is_active", "is_staff", "must_change_password", "last_login"]
    list_filter = ["is_active", "is_staff"]
    filter_horizontal = []
    fieldsets = [
        (None, {"fields": ["username", "password"]}),
        ("Person", {"fields": ["first_name", "last_name", "email"]}),
        ("Access", {"fields": ["is_active", "is_staff", "is_superuser", "must_change_password"]}),
        ("Times", {"fields": ["last_login", "date_joined"]}),
    ]
    readonly_fields = ["last_login", "date_joined"]

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool) -> None:
        """Keeping someone out goes through the action, which ends sessions and raises the epoch of the teams."""
        if not change:
            obj.must_change_password = True  # whoever makes an account knows its first password
        switched = change and "is_active" in form.changed_data
        active = obj.is_active
        if switched:
            obj.is_active = not active
        super().save_model(request, obj, form, change)
        if switched:
            try:
                actions.set_active(obj, active=active, by=_who(request))
            except Refused as refused:
                self.message_user(request, refused.detail, messages.ERROR)

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False  # people are switched off: what they did keeps their name


@admin.register(Team)
class TeamAdmin(PlainAdmin):
    list_display = ["slug", "name", "access_epoch", "created_at"]
    search_fields = ["slug", "name"]
    fields = ["slug", "name"]

    def save_model(self, request: HttpRequest, obj: Team, form: ModelForm[Team], change: bool) -> None:
        """A new team is owned by the admin who makes it, who then hands it on."""
        if change:
            super().save_model(request, obj, form, change)
            return
        made = actions.create_team(slug=obj.slug, name=obj.name, owner=_who(request))
        obj.pk = made.pk

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False  # it would take every workflow and run of the team along


@admin.register(Membership)
class MembershipAdmin(PlainAdmin):
    list_display = ["team", "user", "role"]
    list_filter = ["team", "role"]
    raw_id_fields = ["user"]
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: object = None) -> list[str]:
        return ["team", "user"] if obj else []

    def save_model(self, request: HttpRequest, obj: Membership, form: ModelForm[Membership], change: bool) -> None:
        try:
            obj.pk = actions.set_role(obj.team, obj.user, Role(obj.role), by=_who(request)).pk
        except Refused as refused:
            self.message_user(request, refused.detail, messages.ERROR)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        try:
            actions.remove_member(obj.team, obj.user, by=_who(request))
        except Refused as refused:
            self.message_user(request, refused.detail, messages.ERROR)


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens can be ended here; they are made on the team's page or by `manage.py create_token`."""

    list_display = ["name", "prefix", "team", "user", "role", "scopes", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["team"]
    exclude = ["token_sha256"]
    actions = ["revoke"]

    @admin.action(description="Revoke the chosen tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        ended = sum(actions.revoke_token(token, by=_who(request)) for token in queryset)
        self.message_user(request, f"{ended} tokens were revoked.")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser


@admin.register(Audit)
class AuditAdmin(ReadOnlyAdmin):
    list_display = ["at", "actor", "action", "object_kind", "object_id", "team"]
    list_filter = ["action", "team"]
    date_hierarchy = "at"


def _who(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # noqa: S101 - the admin lets nobody else in
    return request.user
