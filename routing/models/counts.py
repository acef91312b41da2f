"""Exact counts, as the gateways sent them. Figures are those of
``routing.contracts.counts.Figures``."""

from __future__ import annotations

from django.db import models


class Counted(models.Model):
    """The figures that every count has."""

    requests = models.PositiveBigIntegerField(default=0)
    retries = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    estimated = models.PositiveBigIntegerField(default=0)
    duration_ms = models.PositiveBigIntegerField(default=0)
    ttft_ms = models.PositiveBigIntegerField(default=0)
    ttft_count = models.PositiveBigIntegerField(default=0)
    bytes_in = models.PositiveBigIntegerField(default=0)
    bytes_out = models.PositiveBigIntegerField(default=0)

    class Meta:
        abstract = True


class TrafficMinute(Counted):
    """One cell of one gateway: absolute, written over until its minute is done."""

    minute = models.DateTimeField()
    gateway = models.CharField(max_length=64)
    model = models.CharField(max_length=100)
    generation = models.PositiveIntegerField()
    first_version = models.CharField(max_length=100)
    share_bp = models.PositiveIntegerField()
    chosen = models.BooleanField()
    version = models.CharField(max_length=100)
    team = models.CharField(max_length=63)
    key = models.CharField(max_length=12)
    ending = models.CharField(max_length=20)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "minute",
                    "gateway",
                    "model",
                    "generation",
                    "first_version",
                    "share_bp",
                    "chosen",
                    "version",
                    "team",
                    "key",
                    "ending",
                ],
                name="traffic_minute_cell",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.minute:%Y-%m-%d %H:%M}"


class UsageHour(Counted):
    """Who used what in one hour, over all gateways; grows with the minutes."""

    hour = models.DateTimeField()
    team = models.CharField(max_length=63)
    key = models.CharField(max_length=12)
    model = models.CharField(max_length=100)
    version = models.CharField(max_length=100)
    ending = models.CharField(max_length=20)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "team", "key", "model", "version", "ending"],
                name="usage_hour_cell",
            )
        ]

    def __str__(self) -> str:
        return f"{self.team} {self.hour:%Y-%m-%d %H:%M}"


class UsageDay(Counted):
    """The hours of a day of UTC summed up: whatever spans whole days reads far fewer
    rows. Grows in the same transaction as its hours."""

    day = models.DateField()
    team = models.CharField(max_length=63)
    key = models.CharField(max_length=12)
    model = models.CharField(max_length=100)
    version = models.CharField(max_length=100)
    ending = models.CharField(max_length=20)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "team", "key", "model", "version", "ending"],
                name="usage_day_cell",
            )
        ]

    def __str__(self) -> str:
        return f"{self.team} {self.day:%Y-%m-%d}"


class GenerationServed(models.Model):
    """What a gateway served of one generation of a route since it applied it.

    ``requests`` whose version was drawn, not chosen, and which reached a replica of
    ``version``; grows with the minutes.
    """

    model = models.CharField(max_length=100)
    generation = models.PositiveIntegerField()
    gateway = models.CharField(max_length=64)
    first_version = models.CharField(max_length=100)
    version = models.CharField(max_length=100)
    requests = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["model", "generation", "gateway", "first_version", "version"],
                name="generation_served_cell",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.generation} {self.version}: {self.requests}"
