from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.celery import SCHEDULES


class Command(BaseCommand):
    help = "Write the periodic tasks into the database; changed periods stay."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        for schedule in SCHEDULES:
            known = PeriodicTask.objects.filter(name=schedule.name).first()
            if known is not None and known.task == schedule.task:
                continue
            interval, _made = IntervalSchedule.objects.get_or_create(
                every=schedule.every_s, period=IntervalSchedule.SECONDS
            )
            PeriodicTask.objects.update_or_create(
                name=schedule.name,
                defaults={
                    "task": schedule.task,
                    "interval": interval,
                    "expire_seconds": schedule.every_s,
                },
            )
        names = [schedule.name for schedule in SCHEDULES]
        ours = PeriodicTask.objects.filter(task__regex=r"^(cluster|routing)\.")
        ours.exclude(name__in=names).delete()
