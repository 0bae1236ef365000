"""What a page was drawn from goes when it is written, without the garbage collector."""

from __future__ import annotations

import gc
import weakref

import pytest
from django.shortcuts import render
from django.template import TemplateDoesNotExist, engines


class Rows(list):
    """A list that can be watched."""


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_nothing_of_a_page_is_left_to_the_garbage_collector(rf, no_collector):
    rows = Rows()
    seen = weakref.ref(rows)
    assert b"There is nothing here" in render(rf.get("/"), "404.html", {"rows": rows}).content
    del rows
    assert seen() is None


def test_what_does_not_exist_is_said_as_ever():
    with pytest.raises(TemplateDoesNotExist):
        engines["django"].get_template("none.html")
