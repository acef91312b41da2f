from __future__ import annotations

from django.db import models

from cluster.models.replica import Replica


class Sample(models.Model):
    """The load of a replica over one minute: the mean and the highest of its scrapes.

    Null is what its engine does not say. ``kv`` is the used share of the KV cache,
    0 to 1. A minute without any scrape has no row.
    """

    replica = models.ForeignKey(
        Replica, on_delete=models.CASCADE, related_name="samples"
    )
    minute = models.DateTimeField(db_index=True)
    scrapes = models.PositiveSmallIntegerField()
    running_mean = models.FloatField(null=True)
    running_max = models.FloatField(null=True)
    waiting_mean = models.FloatField(null=True)
    waiting_max = models.FloatField(null=True)
    kv_mean = models.FloatField(null=True)
    kv_max = models.FloatField(null=True)
    tokens_per_s_mean = models.FloatField(null=True)
    tokens_per_s_max = models.FloatField(null=True)
    ttft_ms_mean = models.FloatField(null=True)
    ttft_ms_max = models.FloatField(null=True)

    class Meta:
        ordering = ["replica_id", "minute"]
        constraints = [
            models.UniqueConstraint(
                fields=["replica", "minute"], name="sample_one_a_minute"
            )
        ]

    def __str__(self) -> str:
        return f"{self.replica_id} {self.minute:%H:%M}"
