from __future__ import annotations

import pytest
from django.core.management import call_command
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.celery import SCHEDULES, app

pytestmark = pytest.mark.django_db


def test_every_schedule_is_installed_and_expires_before_its_next_turn() -> None:
    call_command("schedule_install")
    tasks = PeriodicTask.objects.exclude(task__startswith="celery.")
    assert {task.name for task in tasks} == {schedule.name for schedule in SCHEDULES}
    for task in tasks:
        assert task.expire_seconds == task.interval.every


def test_a_period_that_an_admin_changed_stays() -> None:
    call_command("schedule_install")
    slow = IntervalSchedule.objects.create(every=60, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.filter(name=SCHEDULES[0].name).update(interval=slow)
    call_command("schedule_install")
    assert PeriodicTask.objects.get(name=SCHEDULES[0].name).interval == slow


def test_a_task_that_no_longer_exists_is_taken_out() -> None:
    PeriodicTask.objects.create(
        name="Gone",
        task="cluster.tasks.gone",
        interval=IntervalSchedule.objects.create(every=9, period="seconds"),
    )
    call_command("schedule_install")
    assert not PeriodicTask.objects.filter(name="Gone").exists()


def test_every_scheduled_task_exists() -> None:
    app.loader.import_default_modules()
    for schedule in SCHEDULES:
        assert schedule.task in app.tasks
