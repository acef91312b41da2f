"""The guide inside the console."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.guide import CHAPTERS, chapter_shown


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    chapters = [chapter_shown(name) for name in CHAPTERS]
    return render(request, "guide/index.html", {"chapters": chapters})


@require_safe
def chapter(request: HttpRequest, name: str) -> HttpResponse:
    if name not in CHAPTERS:
        raise Http404
    here = CHAPTERS.index(name)
    context = {
        "chapter": chapter_shown(name),
        "chapters": [chapter_shown(other) for other in CHAPTERS],
        "next": chapter_shown(CHAPTERS[here + 1]) if here + 1 < len(CHAPTERS) else None,
    }
    return render(request, "guide/chapter.html", context)
