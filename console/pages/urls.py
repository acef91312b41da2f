"""The addresses of the pages. Names of things come last in a path or before a fixed
word, so that a model may be called ``new``."""

from __future__ import annotations

from django.urls import URLPattern, path
from django.views.i18n import set_language

from console.accounts.grants import Scope
from console.pages import (
    analysis,
    audit,
    gateways,
    guide,
    keys,
    model_edit,
    models,
    nodes,
    overview,
    page,
    profile,
    replica_live,
    replicas,
    requests,
    route_history,
    route_settings,
    search,
    session,
    teams,
    traffic,
    undo,
    usage,
    users,
)

urlpatterns: list[URLPattern] = [
    path("login", session.Login.as_view(), name="login"),
    path("logout", session.Logout.as_view(), name="logout"),
    path("language", set_language, name="language"),
    path("theme", session.theme, name="theme"),
    path("undo", page(undo.undo), name="undo"),
    path("", page(overview.overview), name="overview"),
    path("models", page(models.model_list), name="models"),
    path("models/<str:model>", page(models.model), name="model"),
    path(
        "models/<str:model>/edit",
        page(model_edit.model_edit, Scope.FLEET),
        name="model-edit",
    ),
    path(
        "models/<str:model>/delete",
        page(model_edit.model_remove, Scope.FLEET),
        name="model-remove",
    ),
    path("models/<str:model>/analysis", page(analysis.analysis), name="analysis"),
    path(
        "models/<str:model>/analysis.json",
        page(analysis.analysis_data),
        name="analysis-data",
    ),
    path(
        "models/<str:model>/analysis.csv",
        page(analysis.analysis_csv),
        name="analysis-csv",
    ),
    path(
        "models/<str:model>/traffic",
        page(traffic.traffic, Scope.TRAFFIC),
        name="traffic",
    ),
    path(
        "models/<str:model>/history",
        page(route_history.route_history, Scope.TRAFFIC),
        name="route-history",
    ),
    path(
        "models/<str:model>/settings",
        page(route_settings.route_settings, Scope.TRAFFIC),
        name="route-settings",
    ),
    path(
        "models/<str:model>/new-version",
        page(models.version_new, Scope.FLEET),
        name="version-new",
    ),
    path("new/model", page(models.model_new, Scope.FLEET), name="model-new"),
    path("replicas", page(replicas.replica_rows), name="replicas"),
    path("replicas/<str:replica_id>", page(replicas.replica), name="replica"),
    path(
        "replicas/<str:replica_id>/timeline",
        page(replica_live.timeline_region),
        name="replica-timeline",
    ),
    path(
        "replicas/<str:replica_id>/engine",
        page(replica_live.engine_region),
        name="replica-engine",
    ),
    path(
        "replicas/<str:replica_id>/now",
        page(replica_live.now),
        name="replica-now",
    ),
    path("replicas/<str:replica_id>/log", page(replica_live.log), name="replica-log"),
    path(
        "replicas/<str:replica_id>/<str:verb>",
        page(replicas.replica_act, Scope.FLEET),
        name="replica-act",
    ),
    path("new/replica", page(replicas.replica_new, Scope.FLEET), name="replica-new"),
    path("nodes", page(nodes.nodes), name="nodes"),
    path("nodes/<str:name>", page(nodes.node), name="node"),
    path("teams", page(teams.team_list), name="teams"),
    path("teams/<str:slug>", page(teams.team), name="team"),
    path("teams/<str:slug>/new-key", page(keys.key_new), name="key-new"),
    path(
        "teams/<str:slug>/<str:verb>",
        page(teams.team_act, Scope.TEAMS),
        name="team-act",
    ),
    path("keys", page(keys.key_list), name="keys"),
    path("keys/<str:key_id>", page(keys.key), name="key"),
    path("keys/<str:key_id>/revoke", page(keys.key_revoke), name="key-revoke"),
    path("new/team", page(teams.team_new, Scope.TEAMS), name="team-new"),
    path("requests", page(requests.request_rows), name="requests"),
    path("requests/<str:request_id>", page(requests.request_show), name="request"),
    path("search", page(search.search_show), name="search"),
    path("usage", page(usage.usage), name="usage"),
    path("usage.json", page(usage.usage_data), name="usage-data"),
    path("usage-chart.csv", page(usage.usage_chart_csv), name="usage-chart-csv"),
    path("usage.csv", page(usage.usage_csv), name="usage-csv"),
    path("audit", page(audit.audit, reads=Scope.AUDIT), name="audit"),
    *(
        path(
            f"audit.{ending}",
            page(audit.audit_file, reads=Scope.AUDIT),
            {"ending": ending},
            name=f"audit-{ending}",
        )
        for ending in ("csv", "jsonl")
    ),
    path("gateways", page(gateways.gateways), name="gateways"),
    path("help", page(guide.index), name="help"),
    path("help/<str:name>", page(guide.chapter), name="help-chapter"),
    path("users", page(users.user_list, reads=Scope.ACCOUNTS), name="users"),
    path(
        "new/user",
        page(users.user_new, Scope.ACCOUNTS, reads=Scope.ACCOUNTS),
        name="user-new",
    ),
    path(
        "users/<str:username>",
        page(users.user, Scope.ACCOUNTS, reads=Scope.ACCOUNTS),
        name="user",
    ),
    path(
        "users/<str:username>/<str:verb>",
        page(users.user_act, Scope.ACCOUNTS),
        name="user-act",
    ),
    path(
        "users/<str:username>/sessions/<str:row>/end",
        page(users.user_session_end, Scope.ACCOUNTS),
        name="user-session-end",
    ),
    path(
        "users/<str:username>/tokens/<str:row>/revoke",
        page(users.user_token_revoke, Scope.ACCOUNTS),
        name="user-token-revoke",
    ),
    path("profile", page(profile.profile), name="profile"),
    path("profile/password", page(profile.password), name="profile-password"),
    path("profile/new-token", page(profile.token_new), name="profile-token-new"),
    path(
        "profile/tokens/<str:row>/revoke",
        page(profile.token_end),
        name="profile-token-revoke",
    ),
    path(
        "profile/sessions/<str:row>/end",
        page(profile.session_end),
        name="profile-session-end",
    ),
    path(
        "profile/end-other-sessions",
        page(profile.sessions_end),
        name="profile-sessions-end",
    ),
]
