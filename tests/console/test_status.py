"""One vocabulary: every state has a mark, a word and a sentence, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.utils import translation

from cluster.health import Cause, Label, State
from console.status import LABELS, TOKENS, label_mark, state_mark


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("label", list(Label))
def test_every_label_has_a_word(label: Label, language: str) -> None:
    with translation.override(language):
        mark = label_mark(label)
    assert mark.token in TOKENS and mark.word
    assert mark.word.isascii() == (language == "en")


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_a_sentence(cause: Cause) -> None:
    assert state_mark(State(Label.DOWN, cause, False)).sentence.endswith(".")


def test_a_state_that_nobody_can_know_is_unknown() -> None:
    mark = state_mark(None)
    assert (mark.token, mark.word) == ("stale", "Unknown")


def test_filters_offer_every_label_once() -> None:
    assert sorted(LABELS) == sorted(Label)


@pytest.mark.parametrize("token", TOKENS)
def test_every_token_has_a_shape_and_a_colour(token: str) -> None:
    base = Path(settings.BASE_DIR)
    assert f'id="state-{token}"' in (base / "static/icons.svg").read_text()
    assert f".mark-{token}" in (base / "static/css/base.css").read_text()
