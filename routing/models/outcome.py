from __future__ import annotations

from django.db import models
from django.db.models import Q


class OutcomeRecord(models.Model):
    """How one request ended: the columns that lists filter by, and the whole outcome.

    ``id`` is the request id, whose first 48 bits are the Unix milliseconds of its
    arrival: ids sort by time, so a span of time is a span of ids. Names are kept as
    text, because outcomes outlive teams, keys and replicas. ``body`` is the outcome
    of ``routing.contracts.outcome`` as JSON. ``slow`` is decided when it is written
    (``routing.services.ingest``).
    """

    id = models.UUIDField(primary_key=True)
    at = models.DateTimeField()
    gateway = models.CharField(max_length=64)
    team = models.CharField(max_length=63)
    key = models.CharField(max_length=12)
    model = models.CharField(max_length=100)
    generation = models.PositiveIntegerField()
    first_version = models.CharField(max_length=100)
    version = models.CharField(max_length=100)
    replica = models.CharField(max_length=220)
    status = models.PositiveSmallIntegerField()
    ending = models.CharField(max_length=20)
    code = models.CharField(max_length=40)
    slow = models.BooleanField()
    attempts = models.PositiveSmallIntegerField()
    duration_ms = models.FloatField()
    first_content_ms = models.FloatField(null=True)
    prompt_tokens = models.PositiveBigIntegerField(null=True)
    completion_tokens = models.PositiveBigIntegerField(null=True)
    body = models.BinaryField()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["model", "-id"], name="outcome_by_model"),
            models.Index(fields=["team", "-id"], name="outcome_by_team"),
            models.Index(fields=["key", "-id"], name="outcome_by_key"),
            models.Index(fields=["replica", "-id"], name="outcome_by_replica"),
            models.Index(
                fields=["ending", "-id"],
                name="outcome_by_bad_ending",
                condition=~Q(ending="completed"),
            ),
            models.Index(
                fields=["-id"],
                name="outcome_by_failure",
                condition=~Q(ending="completed"),
            ),
            models.Index(
                fields=["-id"], name="outcome_by_slowness", condition=Q(slow=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.id.hex} {self.ending}"


class TelemetrySource(models.Model):
    """How far the outcomes and counts of one gateway process are in the database.

    ``last_outcome`` and ``counts_seq`` are the numbers of the last outcome and of the
    last write of counts that were taken; ``lost`` counts numbers that never came,
    ``unfinished`` the requests that were open when the process was last heard of and
    that it never ended. ``closed_at`` is when it was found to be gone for good.
    """

    gateway = models.CharField(primary_key=True, max_length=64)
    last_outcome = models.PositiveBigIntegerField(default=0)
    counts_seq = models.PositiveBigIntegerField(default=0)
    lost = models.PositiveBigIntegerField(default=0)
    lost_at = models.DateTimeField(null=True)
    unfinished = models.PositiveIntegerField(default=0)
    closed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.gateway


class TelemetryCursor(models.Model):
    """One row: up to where the stream of outcomes was read. Whoever moves it from where
    they saw it owns what lies between; ``foreign`` counts entries and lines that no
    gateway wrote."""

    epoch = models.CharField(max_length=64, default="")
    last_id = models.CharField(max_length=64, default="0-0")
    foreign = models.PositiveBigIntegerField(default=0)
    moved_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.last_id
