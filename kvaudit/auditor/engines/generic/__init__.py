"""Any shared pool that tells its numbers in JSON, declared with JSON pointers."""

from __future__ import annotations

from kvaudit.auditor.engines.descriptor import Engine

ENGINE = Engine(id="generic", title="generic pool", order=99, by_pointers=True)
