"""The lab's part of the story: a wish in the folder restarts a deployment, and the answer says what it is."""

from __future__ import annotations

import asyncio
import json

import pytest

from kvaudit.lab import restart as story
from tests.waiting import until_async


async def _fulfilled(folder, restart, *wishes):
    following = asyncio.ensure_future(story.follow(folder, restart))
    found = []
    try:
        await asyncio.sleep(0)
        for identity, slug in wishes:
            story.wish(folder, identity=identity, slug=slug, fault="healthy")
            found.append(
                await until_async(
                    lambda identity=identity: story.answered(folder, identity), f"wish {identity} is answered"
                )
            )
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return found


def test_a_wish_is_fulfilled_and_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(story, "GLANCE", 0.01)
    asked = []

    async def restart(slug, fault):
        asked.append((slug, fault))
        if slug != "lab-leaking":
            raise KeyError(slug)
        return {"version": "0.5.22"}

    first, second = asyncio.run(_fulfilled(tmp_path, restart, ("1", "lab-leaking"), ("2", "nobody")))
    assert first == {"id": "1", "described": {"version": "0.5.22"}}
    assert "cannot do that" in second["problem"]
    assert asked == [("lab-leaking", "healthy"), ("nobody", "healthy")]
    assert not (tmp_path / story.WISH).exists()


def test_an_old_wish_is_not_fulfilled_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(story, "GLANCE", 0.01)
    story.wish(tmp_path, identity="old", slug="lab-leaking", fault="healthy")

    asked = []

    async def restart(slug, fault):
        asked.append(slug)
        return {}

    [answer] = asyncio.run(_fulfilled(tmp_path, restart, ("new", "lab-fixed")))
    assert answer == {"id": "new", "described": {}}
    assert asked == ["lab-fixed"]


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"id": "other"})])
def test_half_an_answer_is_none(tmp_path, text):
    (tmp_path / story.ANSWER).write_text(text)
    assert story.answered(tmp_path, "1") is None
