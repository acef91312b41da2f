"""Usage summed up by days of UTC, also that of before."""

from datetime import UTC, datetime, timedelta

from django.db import migrations, models
from django.db.models import Sum

_NAMES = ("team", "key", "model", "version", "ending")
_FIGURES = (
    *("requests", "retries", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("estimated", "duration_ms", "ttft_ms", "ttft_count", "bytes_in", "bytes_out"),
)


def days_fill(apps, schema_editor):
    """Day by day, so that memory holds the sums of one."""
    hours = apps.get_model("routing", "UsageHour").objects
    days = apps.get_model("routing", "UsageDay").objects
    following = hours.order_by("hour").values_list("hour", flat=True)
    since = following.first()
    while since is not None:
        day = since.astimezone(UTC).date()
        begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
        until = begins + timedelta(days=1)
        rows = hours.filter(hour__gte=begins, hour__lt=until).values(*_NAMES)
        sums = {f"{name}_sum": Sum(name) for name in _FIGURES}
        days.bulk_create(
            (
                days.model(
                    day=day,
                    **{name: row[name] for name in _NAMES},
                    **{name: row[f"{name}_sum"] for name in _FIGURES},
                )
                for row in rows.annotate(**sums).order_by(*_NAMES)
            ),
            batch_size=1_000,
        )
        since = following.filter(hour__gte=until).first()


def figure():
    return models.PositiveBigIntegerField(default=0)


class Migration(migrations.Migration):
    dependencies = [("routing", "0005_key_list")]
    operations = [
        migrations.CreateModel(
            name="UsageDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                *((name, figure()) for name in _FIGURES),
                ("day", models.DateField()),
                ("team", models.CharField(max_length=63)),
                ("key", models.CharField(max_length=12)),
                ("model", models.CharField(max_length=100)),
                ("version", models.CharField(max_length=100)),
                ("ending", models.CharField(max_length=20)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", *_NAMES), name="usage_day_cell"
                    )
                ],
            },
        ),
        migrations.RunPython(
            days_fill, migrations.RunPython.noop, elidable=True
        ),
    ]
