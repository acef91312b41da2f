from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from cluster.models.model import Version
from cluster.models.node import Node


class Driver(models.TextChoices):
    """How a replica is run."""

    STATIC = "static", _("Static address")
    PROCESS = "process", _("Process on a node")


class Replica(models.Model):
    """One running copy of a version at an address.

    What people want stands here (``admin_state``, ``wanted_running``); what is,
    stands in the live record in Redis. ``id`` is readable and never reused:
    ``<model>-<version>-<number>``. The last block is the node's own notebook of
    the process it started, by which it knows it again after a restart.
    """

    id = models.CharField(primary_key=True, max_length=220, editable=False)
    version = models.ForeignKey(
        Version, on_delete=models.PROTECT, related_name="replicas"
    )
    number = models.PositiveIntegerField(editable=False)
    driver = models.CharField(max_length=16, choices=Driver.choices)
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.PROTECT, related_name="replicas"
    )
    # http://host:port without a path; empty until a process has its port.
    address = models.CharField(max_length=300, blank=True)
    admin_state = models.CharField(
        max_length=16,
        choices=[
            ("enabled", _("Enabled")),
            ("draining", _("Draining")),
            ("disabled", _("Disabled")),
        ],
        default="enabled",
    )
    admin_since = models.DateTimeField(auto_now_add=True)
    # Of a drain: stop when nothing is open any more, and at this time whatever is.
    drain_then_stop = models.BooleanField(default=False)
    drain_deadline = models.DateTimeField(null=True, editable=False)
    # Since when nothing is open; null while something may be.
    drained_at = models.DateTimeField(null=True, editable=False)
    wanted_running = models.BooleanField(default=True)
    # Moved by a restart: a process started for an older number is replaced.
    wanted_start = models.PositiveIntegerField(default=1)
    # A removed replica keeps its row (requests name it) and leaves every list.
    removed_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    pid = models.PositiveIntegerField(null=True, editable=False)
    pid_started = models.FloatField(null=True, editable=False)
    boot_id = models.CharField(max_length=64, blank=True, editable=False)
    started_for = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["version_id", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["version", "number"], name="replica_number_unique_in_version"
            ),
            models.UniqueConstraint(
                fields=["version", "address"],
                condition=Q(removed_at__isnull=True) & ~Q(address=""),
                name="replica_address_unique_in_version",
            ),
            models.CheckConstraint(
                condition=Q(driver="static", node__isnull=True)
                | Q(driver="process", node__isnull=False),
                name="replica_process_has_node",
            ),
        ]

    def __str__(self) -> str:
        return self.id
