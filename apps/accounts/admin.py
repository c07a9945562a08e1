"""People, teams, members, tokens and the audit trail. A write here is the same action as anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.db.models import QuerySet
from django.forms import CheckboxSelectMultiple, ModelForm, MultipleChoiceField
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from apps.accounts import actions
from apps.accounts.admin_base import PlainAdmin, ReadOnlyAdmin
from apps.accounts.errors import Refused
from apps.accounts.models import ApiToken, Audit, Membership, Team, User
from apps.accounts.roles import Role
from apps.accounts.scopes import Scope

if TYPE_CHECKING:
    _UserAdmin = UserAdmin[User]
    _TokenForm = ModelForm[ApiToken]
else:
    _UserAdmin = UserAdmin  # not subscriptable outside the type checker
    _TokenForm = ModelForm


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
        """Keeping someone out goes through the action, which keeps a team its last owner."""
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
    list_display = ["slug", "name", "created_at"]
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


class TokenForm(_TokenForm):
    scopes = MultipleChoiceField(
        choices=[(scope.value, scope.value) for scope in Scope],
        widget=CheckboxSelectMultiple,
        help_text="What it may be used for; none reaches further than the holder's role.",
    )

    class Meta:
        model = ApiToken
        fields = ["team", "user", "name", "scopes", "expires_at"]

    def clean(self) -> dict[str, Any] | None:
        """Refuse here what the action would refuse, where the form can still be mended."""
        cleaned: dict[str, Any] | None = super().clean()
        if not self.errors:
            try:
                actions.check_token(self.cleaned_data["team"], self.cleaned_data["user"], self.cleaned_data["scopes"])
            except Refused as refused:
                self.add_error("scopes", refused.detail)
        return cleaned


@admin.register(ApiToken)
class ApiTokenAdmin(PlainAdmin):
    """Tokens are made and ended here, never changed; a new one is shown in the answer to its making, once."""

    form = TokenForm
    list_display = ["name", "prefix", "team", "user", "role", "scopes", "last_used_at", "expires_at", "revoked_at"]
    list_filter = ["team"]
    raw_id_fields = ["user"]
    actions = ["revoke"]

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        given = form.cleaned_data
        made = actions.make_token(
            given["team"],
            given["user"],
            name=given["name"],
            scopes=given["scopes"],
            expires_at=given["expires_at"],
            by=_who(request),
        )
        obj.pk = made.token.pk
        request.made_token = made.secret  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None) -> HttpResponse:
        secret: str = request.made_token  # type: ignore[attr-defined]
        context = {**self.admin_site.each_context(request), "token": obj, "secret": secret}
        return TemplateResponse(request, "admin/accounts/apitoken/made.html", context)

    @admin.action(description="Revoke the chosen tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        ended = sum(actions.revoke_token(token, by=_who(request)) for token in queryset)
        self.message_user(request, f"{ended} tokens were revoked.")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Audit)
class AuditAdmin(ReadOnlyAdmin):
    list_display = ["at", "actor", "action", "object_kind", "object_id", "team"]
    list_filter = ["action", "team"]
    date_hierarchy = "at"


def _who(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # noqa: S101 - the admin lets nobody else in
    return request.user
