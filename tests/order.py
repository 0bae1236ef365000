"""Which files begin a run of all tests: those of few long tests, so that no worker waits alone for them at the end.

pytest-xdist by itself begins with the files of most tests, which are the quick ones (``--no-loadscope-reorder`` in
the Makefile stops that).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

SLOWEST_FIRST = (
    "redteam/test_redteam.py",
    "flows/test_active.py",
    "server/ops/test_up.py",
    "flows/test_fleet.py",
    "flows/test_recovery.py",
    "browser/test_story.py",
    "packaging/test_installed.py",
    "upgrade/test_upgrade.py",
    "flows/test_drill_clock.py",
    "server/ops/test_drill_disk.py",
    "server/ops/backup/test_commands.py",
    "server/web/test_query_counts.py",
    "server/web/test_odd_queries.py",
    "browser/test_pages.py",
    "browser/test_figures.py",
    "browser/test_settings.py",
    "auditor/checks/test_concurrency.py",
    "auditor/checks/test_canary.py",
    "auditor/checks/test_prefix.py",
    "browser/test_compliance_pages.py",
    "lab/test_matrix.py",
    "server/incidents/test_on_the_lab.py",
    "browser/test_history.py",
    "lab/test_interleavings.py",
    "browser/test_settings_acts.py",
    "browser/test_questions.py",
    "browser/test_every_address.py",
    "auditor/prober/test_silence.py",
    "auditor/prober/test_probe_set.py",
    "server/ops/test_initialise.py",
    "server/web/test_hostile.py",
    "server/checklists/test_models.py",
    "server/web/kit/test_forms_keep.py",
    "test_parsers_time.py",
    "browser/test_saved_views.py",
    "browser/test_run_page.py",
    "server/ops/test_slow_clients.py",
    "lab/test_serve.py",
    "server/audits/execution/test_claims.py",
)
"""By the processor time of each, drills among them; what is not named follows in random order."""

TESTS = Path(__file__).parent
_RANKS = {TESTS / name: rank for rank, name in enumerate(SLOWEST_FIRST)}


class Item(Protocol):
    path: Path


AnyItem = TypeVar("AnyItem", bound=Item)


def slowest_first(items: list[AnyItem]) -> None:
    """Move the tests of these files to the front, in place; within a file and for all others the order stays."""
    items.sort(key=lambda item: _RANKS.get(item.path, len(_RANKS)))
