"""Which pin holds, and how a build stands to it. Unknown is never met."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from kvaudit.server.fleet import pins as pinning
from kvaudit.server.fleet.models import Pin
from kvaudit.server.fleet.pins import InForce, PinState, exactly, state_of, worst
from kvaudit.server.fleet.services import set_pin
from kvaudit.server.fleet.target_loader import rules_of
from tests.factories import a_deployment
from tests.waiting import PATIENCE, until

HELD = InForce("sglang", ">=0.5.22")


@pytest.mark.parametrize(
    ("version", "held", "state"),
    [
        ("0.5.22", HELD, PinState.MET),
        ("0.5.21", HELD, PinState.OUTSIDE),
        ("0.5.22rc1", HELD, PinState.OUTSIDE),
        ("v0.5.23-cu129", HELD, PinState.MET),
        ("0.5.22.dev7", HELD, PinState.UNDECIDED),
        ("latest", HELD, PinState.UNDECIDED),
        ("", HELD, PinState.UNDECIDED),
        ("0.5.22", InForce("sglang", "whatever"), PinState.UNDECIDED),
        ("0.5.22", None, PinState.UNPINNED),
        ("", None, PinState.UNPINNED),
    ],
)
def test_how_a_build_stands(version, held, state):
    assert state_of(version, held) is state


def test_the_worst_counts_and_nothing_read_is_not_met():
    assert worst([]) is PinState.UNREAD
    assert worst([PinState.MET, PinState.UNPINNED]) is PinState.UNPINNED
    assert worst([PinState.MET, PinState.UNDECIDED, PinState.UNREAD]) is PinState.UNDECIDED
    assert worst(PinState) is PinState.OUTSIDE


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("0.5.22", "==0.5.22"),
        ("v0.5.22-cu129", "==0.5.22"),
        ("example.com/sglang:v0.5.22rc1", "==0.5.22rc1"),
        ("0.5.22-1", ">=0.5.22,<=0.5.22.post1"),
        ("0.5.20.dev7", ""),
        ("0.5.22+acme.3", ""),
        ("latest", ""),
        ("", ""),
    ],
)
def test_what_runs_now_as_a_range_holds_it_and_nothing_else(version, wanted):
    assert exactly(version) == wanted
    if wanted:
        held = InForce("sglang", wanted)
        assert state_of(version, held) is PinState.MET
        assert state_of("0.5.23", held) is PinState.OUTSIDE
        assert state_of("0.5.21", held) is PinState.OUTSIDE


@pytest.mark.django_db
def test_a_deployment_s_own_pin_goes_before_the_fleet_s_and_that_before_the_shipped_one():
    ours, theirs = a_deployment(), a_deployment()

    def held(deployment):
        pins = Pin.objects.current()
        found = pinning.in_force(pins, deployment.pk)
        assert rules_of(deployment).pins == tuple(found[engine].text for engine in sorted(found))
        return {engine: (each.specifier, each.scope) for engine, each in found.items()}

    assert held(ours) == {"sglang": (">=0.5.22", "shipped")}
    set_pin(engine="sglang", specifier=">=0.5.23", actor="system:tests")
    set_pin(engine="vllm", specifier=">=0.11", actor="system:tests")
    set_pin(engine="sglang", specifier="==0.5.19", actor="system:tests", deployment=ours)
    assert held(ours) == {"sglang": ("==0.5.19", "deployment"), "vllm": (">=0.11", "fleet")}
    assert held(theirs) == {"sglang": (">=0.5.23", "fleet"), "vllm": (">=0.11", "fleet")}
    set_pin(engine="sglang", specifier="", actor="system:tests", deployment=ours)
    assert held(ours)["sglang"] == (">=0.5.23", "fleet")


@pytest.mark.django_db(transaction=True)
def test_two_people_at_once_leave_one_pin_and_a_sentence():
    """The second insert waits for the first transaction, then finds that it may not be."""
    deployment = a_deployment()
    said: list[str] = []

    def second() -> None:
        try:
            set_pin(engine="sglang", specifier=">=0.5.24", actor="system:b", deployment=deployment)
        except (ValueError, IntegrityError) as problem:
            said.append(f"{type(problem).__name__}: {problem}")
        finally:
            connection.close()

    def waiting() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            return bool(cursor.fetchone()[0])

    thread = threading.Thread(target=second)
    with transaction.atomic():
        Pin.objects.create(deployment=deployment, engine="sglang", specifier=">=0.5.23", set_by="system:a")
        thread.start()
        until(waiting, "the second waits for the first")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [pin.set_by for pin in Pin.objects.current()] == ["system:a"]
    assert said[0].startswith("ValueError: Somebody else set the pin of sglang at the same moment")
