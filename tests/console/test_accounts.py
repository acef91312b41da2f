"""The first start: secrets that always open what they are said to open."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django.fixtures import Settings

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.models import AuditRecord
from console.accounts import services
from console.accounts.models import AccessToken, User
from console.accounts.services import (
    admin_password_reset,
    admin_token_reset,
    first_start,
    token_issue,
    token_revoke,
)
from console.accounts.tokens import token_find, token_generate

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]


def secret(folder: Path, name: str) -> str:
    return (folder / name).read_text().strip()


def admin_opens(folder: Path) -> bool:
    """Whether both files let their reader in."""
    user = User.objects.get(username="admin")
    token = token_find(secret(folder, "admin-token"))
    return user.check_password(secret(folder, "admin-password")) and token is not None


def test_the_first_start_makes_one_admin_whose_secrets_lie_in_files(
    tmp_path: Path, actor: Actor
) -> None:
    start = first_start(data_dir=tmp_path, actor=actor)
    assert start.made and not start.lost
    assert admin_opens(tmp_path)
    admin = User.objects.get()
    assert admin.is_superuser and admin.is_staff
    for path in (start.password_file, start.token_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "accounts.lock",
        "admin-password",
        "admin-token",
    ]


def test_no_secret_reaches_the_database_or_the_audit_record(
    tmp_path: Path, actor: Actor
) -> None:
    first_start(data_dir=tmp_path, actor=actor)
    rows = f"{list(AuditRecord.objects.values())}{list(AccessToken.objects.values())}"
    rows += f"{list(User.objects.values())}"
    assert secret(tmp_path, "admin-token") not in rows
    assert secret(tmp_path, "admin-password") not in rows


def test_a_second_start_changes_nothing(tmp_path: Path, actor: Actor) -> None:
    first_start(data_dir=tmp_path, actor=actor)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    assert not first_start(data_dir=tmp_path, actor=actor).made
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before
    assert User.objects.count() == AccessToken.objects.count() == 1


def test_a_renamed_admin_is_not_made_again(tmp_path: Path, actor: Actor) -> None:
    first_start(data_dir=tmp_path, actor=actor)
    User.objects.update(username="grace")
    assert not first_start(data_dir=tmp_path, actor=actor).made
    assert User.objects.count() == 1


def test_a_start_that_died_before_the_commit_is_taken_up_by_the_next(
    tmp_path: Path, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(**_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(services, "_token_create", die)
        with pytest.raises(KeyboardInterrupt):
            first_start(data_dir=tmp_path, actor=actor)
    assert not User.objects.exists()
    left = secret(tmp_path, "admin-password")
    (tmp_path / ".secret-left").write_text("half")
    assert first_start(data_dir=tmp_path, actor=actor).made
    assert secret(tmp_path, "admin-password") == left
    assert admin_opens(tmp_path)
    assert not list(tmp_path.glob(".secret-*"))


def test_the_loser_of_two_first_starts_keeps_no_file_that_opens_nothing(
    tmp_path: Path, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines, one database: the other one commits just before this one."""
    winner, loser = tmp_path / "winner", tmp_path / "loser"
    create = services._admin_create

    def late(**arguments: object) -> bool:
        monkeypatch.undo()
        first_start(data_dir=winner, actor=actor)
        return create(**arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(services, "_admin_create", late)
    start = first_start(data_dir=loser, actor=actor)
    assert not start.made
    assert start.lost == (start.password_file, start.token_file)
    assert admin_opens(winner)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("hello"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: os.mkfifo(path),
        lambda path: (path.write_text("abcde-abcde-abcde-abcde"), path.chmod(0o644)),
    ],
    ids=["other content", "folder", "link", "pipe", "readable by others"],
)
def test_a_file_in_the_way_is_refused_and_left_alone(
    tmp_path: Path, actor: Actor, spoil: object
) -> None:
    assert callable(spoil)
    spoil(tmp_path / "admin-password")
    with pytest.raises(Refused, match="admin-password"):
        first_start(data_dir=tmp_path, actor=actor)
    assert not User.objects.exists()
    assert os.path.lexists(tmp_path / "admin-password")


def test_a_data_directory_that_cannot_be_is_told_in_one_sentence(
    tmp_path: Path, actor: Actor
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot hold"):
        first_start(data_dir=tmp_path / "file", actor=actor)


def test_the_command_says_what_is_lost_and_how_to_replace_it(
    tmp_path: Path,
    actor: Actor,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings.DATA_DIR = tmp_path
    call_command("first_start")
    out = capsys.readouterr().out
    assert f"{tmp_path}/admin-password" in out and f"{tmp_path}/admin-token" in out
    assert secret(tmp_path, "admin-password") not in out
    (tmp_path / "admin-password").unlink()
    (tmp_path / "admin-token").unlink()
    call_command("first_start")
    out = capsys.readouterr().out
    assert "manage.py admin_password" in out and "manage.py admin_token" in out
    call_command("admin_password")
    call_command("admin_token")
    assert admin_opens(tmp_path)
    assert stat.S_IMODE((tmp_path / "admin-password").stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="no user nobody"):
        call_command("admin_password", "nobody")


def test_a_reset_password_lets_a_deactivated_admin_in_again(
    tmp_path: Path, actor: Actor
) -> None:
    first_start(data_dir=tmp_path, actor=actor)
    old = secret(tmp_path, "admin-password")
    User.objects.update(is_active=False)
    admin_password_reset(data_dir=tmp_path, actor=actor)
    user = User.objects.get()
    assert user.is_active and not user.check_password(old)
    assert admin_opens(tmp_path)
    with pytest.raises(Missing):
        admin_password_reset(data_dir=tmp_path, username="x", actor=actor)
    assert admin_opens(tmp_path)
    assert not list(tmp_path.glob(".secret-*"))


def test_a_reset_token_revokes_the_old_one_and_no_other(
    tmp_path: Path, actor: Actor
) -> None:
    first_start(data_dir=tmp_path, actor=actor)
    old = secret(tmp_path, "admin-token")
    _token, other = token_issue(user=User.objects.get(), name="ci", actor=actor)
    admin_token_reset(data_dir=tmp_path, actor=actor)
    assert token_find(old) is None
    assert token_find(other) is not None
    assert admin_opens(tmp_path)


def test_only_a_token_in_force_of_an_active_user_is_found(
    actor: Actor,
) -> None:
    user = User.objects.create_user("ada", role="admin")
    token, text = token_issue(user=user, name="ci", actor=actor)
    assert token_find(text) == token
    assert token_find(token_generate()) is None
    assert token_find("") is None
    assert token_find("\udc80") is None
    User.objects.update(is_active=False)
    assert token_find(text) is None
    User.objects.update(is_active=True)
    token_revoke(token=token, actor=actor)
    token_revoke(token=token, actor=actor)
    assert token_find(text) is None
    assert AuditRecord.objects.filter(action="token.revoke").count() == 1
    with pytest.raises(Refused):
        token_issue(user=user, name="", actor=actor)


@pytest.mark.processes
def test_many_first_starts_at_once_and_a_killed_one_leave_one_working_admin(
    tmp_path: Path,
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("brings a database of its own")
    folder = tmp_path / "data"
    environment = os.environ | {
        "SLUICE_DATA_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder}/sluice.sqlite3",
    }

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment
        )

    assert start("migrate", "-v", "0").wait(60) == 0
    killed = start("first_start")
    killed.kill()
    killed.wait(10)
    starts = [start("first_start") for _ in range(3)]
    assert [process.wait(60) for process in starts] == [0, 0, 0]
    check = (
        "from console.accounts.models import User;"
        "from console.accounts.tokens import token_find;"
        "from django.conf import settings as s;"
        "read = lambda n: (s.DATA_DIR / n).read_text().strip();"
        "assert User.objects.get().check_password(read('admin-password'));"
        "assert token_find(read('admin-token'))"
    )
    assert start("shell", "-v", "0", "-c", check).wait(60) == 0
