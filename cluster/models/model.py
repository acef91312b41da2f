from __future__ import annotations

from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

# Names stand in URLs, headers, file names and metric labels.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"
name_validator = RegexValidator(
    NAME_PATTERN,
    _("Use letters, digits, dots, hyphens and underscores, first a letter or digit."),
)


class Kind(models.TextChoices):
    CHAT = "chat", _("Chat")
    COMPLETION = "completion", _("Completion")
    EMBEDDING = "embedding", _("Embedding")
    RERANK = "rerank", _("Rerank")


class Engine(models.TextChoices):
    """The server program that a version runs on."""

    VLLM = "vllm", "vLLM"
    SGLANG = "sglang", "SGLang"
    LLAMACPP = "llamacpp", "llama.cpp"
    OLLAMA = "ollama", "Ollama"
    TGI = "tgi", "TGI"
    GENERIC = "generic", _("Other OpenAI-compatible server")


class Model(models.Model):
    """The name that clients ask for."""

    name = models.CharField(max_length=100, unique=True, validators=[name_validator])
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.CHAT)
    description = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Version(models.Model):
    """One release of a model; immutable once a replica used it.

    A trigger in the database refuses changes after ``used_at`` is set, whatever
    code tries. ``params`` are the launch parameters as the engine spells them,
    without leading hyphens, for instance ``{"ctx-size": 2048, "parallel": 2}``.
    """

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="versions")
    name = models.CharField(max_length=100, validators=[name_validator])
    engine = models.CharField(max_length=16, choices=Engine.choices)
    # What the engine calls the model; requests are rewritten to it.
    served_name = models.CharField(max_length=200)
    # A file, or "package:<name>/<path>" inside an installed Python package.
    artifact = models.CharField(max_length=500, blank=True)
    artifact_sha256 = models.CharField(max_length=64, blank=True)
    params: models.JSONField[dict[str, Any]] = models.JSONField(
        default=dict, blank=True
    )
    description = models.CharField(max_length=500, blank=True)
    used_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "name"], name="version_name_unique_in_model"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model.name} {self.name}"
