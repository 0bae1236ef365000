"""Imports a request log: counts which requests lay inside the danger zone, by tenant. Names and ids never reach
the database in clear: they are hashed with a key of this installation; an uploaded file waits there sealed
(`LogPart`)."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, NamedTuple

from django.conf import settings
from django.db import transaction

from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.fleet.models import Deployment, Tenant
from kvaudit.server.inquiries.request_logs import lengths
from kvaudit.server.inquiries.request_logs.alerts import notify_too_fast
from kvaudit.server.inquiries.request_logs.classification import Judge, Judged, Zone
from kvaudit.server.inquiries.request_logs.models import PrefillBucket, RequestHit, RequestLog, TenantCount
from kvaudit.server.inquiries.request_logs.percentiles import Percentiles, too_fast
from kvaudit.server.inquiries.request_logs.reader import Problem, Request, read
from kvaudit.server.ledger.services import record

MOST_PROBLEMS = 100
MOST_HITS = 20_000  # of each standing
MOST_TENANTS = 20_000
"""Tenants that are counted apart; a log with more of them counts the rest together."""


@dataclass(slots=True)
class Count:
    requests: int = 0
    inside: int = 0
    standing: Counter[Judged] = field(default_factory=Counter)
    first: datetime | None = None
    last: datetime | None = None


@dataclass(slots=True)
class Tally:
    """What a log comes to, while it is read. Bounded, whatever the log holds."""

    lines: int = 0
    requests: int = 0
    in_window: int = 0
    inside: int = 0
    standing: Counter[Judged] = field(default_factory=Counter)
    longer: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    tenants: dict[str, Count] = field(default_factory=dict)
    left_out: int = 0  # requests of tenants beyond `MOST_TENANTS`
    hits: list[RequestHit] = field(default_factory=list)
    prefill: Percentiles = field(default_factory=Percentiles)
    lengths: Counter[int] = field(default_factory=Counter)  # by `lengths.bucket_of`


class Progress(NamedTuple):
    rows: int
    bytes: int
    problems: int


Tell = Callable[[Progress], None]
"""Called about once a `STEP`; what it raises ends the import, and nothing is kept."""

STEP = 256 * 1024
"""Bytes."""


class Hashed:
    """A file that hashes what is read from it, and calls ``step`` with every `STEP` read."""

    def __init__(self, file: IO[bytes], step: Callable[[], None] | None = None) -> None:
        self._file, self._digest, self.size = file, hashlib.sha256(), 0
        self._step, self._next = step, STEP

    def readline(self, most: int) -> bytes:
        line = self._file.readline(most)
        self._digest.update(line)
        self.size += len(line)
        if self._step and self.size >= self._next:
            self._next = self.size + STEP
            self._step()
        return line

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def keyed(kind: str, deployment: Deployment, text: str) -> str:
    """The keyed hash of a tenant's name or a request's id; another deployment's are not comparable."""
    key = hmac.digest(settings.SECRET_KEY.encode(), b"kvaudit.inquiries.request-log", "sha256")
    return hmac.new(key, f"{kind}\0{deployment.pk}\0{text}".encode(), "sha256").hexdigest()


def import_log(
    *, deployment: Deployment, file: IO[bytes], name: str, since: datetime, until: datetime,
    zones: Sequence[Zone], actor: Actor, tell: Tell | None = None,
) -> RequestLog:  # fmt: skip
    """Read the whole log and keep what it comes to. Raises `NoLog` for what is no log at all, PermissionDenied
    unless the actor may read evidence."""
    require(actor, "read_evidence", deployment.team)
    source, tally = read_all(deployment, file, since, until, zones, tell)
    return keep(deployment, source, name, since, until, zones, tally, actor)


def read_all(
    deployment: Deployment, file: IO[bytes], since: datetime, until: datetime, zones: Sequence[Zone],
    tell: Tell | None = None,
) -> tuple[Hashed, Tally]:  # fmt: skip
    """What the log comes to; writes nothing."""
    tally = Tally()

    def step() -> None:
        if tell:
            tell(Progress(tally.lines, source.size, tally.problem_count))

    source = Hashed(file, step)
    count(read(source), deployment, since, until, zones, tally)  # type: ignore[arg-type]
    return source, tally


def count(
    entries: Iterator[Request | Problem],
    deployment: Deployment,
    since: datetime,
    until: datetime,
    zones: Sequence[Zone],
    tally: Tally | None = None,
) -> Tally:
    """Pure but for the key of the hashes. Adds to ``tally`` where one is given."""
    tally = Tally() if tally is None else tally
    hashes: dict[str, str] = {}
    judge = Judge(zones)
    for entry in entries:
        tally.lines += 1
        if isinstance(entry, Problem):
            tally.problem_count += 1
            if len(tally.problems) < MOST_PROBLEMS:
                tally.problems.append(entry)
            continue
        tally.requests += 1
        tally.lengths[lengths.bucket_of(entry.tokens)] += 1
        tally.first_at = min(tally.first_at or entry.at, entry.at)
        tally.last_at = max(tally.last_at or entry.at, entry.at)
        if entry.prefill is not None:
            tally.prefill.add(entry.tokens, entry.prefill)
        if not since <= entry.at < until:
            continue
        tally.in_window += 1
        inside, standing = judge.inside(entry), judge.of(entry)
        tally.inside += inside
        tally.longer += judge.longer(entry)
        if standing is not None:
            tally.standing[standing] += 1
        tenant = hashes.get(entry.tenant)
        if tenant is None:
            tenant = keyed("tenant", deployment, entry.tenant)
            if len(hashes) < MOST_TENANTS:
                hashes[entry.tenant] = tenant
        _by_tenant(tally, tenant, entry, inside, standing)
        if standing is not None and tally.standing[standing] <= MOST_HITS:
            request = keyed("request", deployment, entry.id) if entry.id else ""
            tally.hits.append(
                RequestHit(
                    line=entry.line, at=entry.at, tokens=entry.tokens, tenant=tenant, request=request,
                    standing=standing.value,
                )
            )  # fmt: skip
    return tally


def _by_tenant(tally: Tally, tenant: str, entry: Request, inside: bool, standing: Judged | None) -> None:
    found = tally.tenants.get(tenant)
    if found is None:
        if len(tally.tenants) >= MOST_TENANTS:
            tally.left_out += 1
            return
        found = tally.tenants[tenant] = Count()
    found.requests += 1
    if standing is not None:
        found.standing[standing] += 1
    if inside:
        found.inside += 1
        found.first = min(found.first or entry.at, entry.at)
        found.last = max(found.last or entry.at, entry.at)


@transaction.atomic
def keep(
    deployment: Deployment, source: Hashed, name: str, since: datetime, until: datetime, zones: Sequence[Zone],
    tally: Tally, actor: Actor,
) -> RequestLog:  # fmt: skip
    log = RequestLog.objects.create(
        deployment=deployment,
        name=clean_text(name, 200) or "request log",
        sha256=source.sha256,
        size=source.size,
        imported_by=actor if isinstance(actor, User) else None,
        since=since,
        until=until,
        zones=[zone.as_json() for zone in zones],
        lines=tally.lines,
        requests=tally.requests,
        in_window=tally.in_window,
        inside=tally.inside,
        leaking=tally.standing[Judged.LEAKING],
        unknown=tally.standing[Judged.UNKNOWN],
        longer=tally.longer,
        first_at=tally.first_at,
        last_at=tally.last_at,
        problem_count=tally.problem_count,
        problems=[{"line": problem.line, "sentence": problem.sentence} for problem in tally.problems],
        tenants_left_out=tally.left_out,
        lengths=lengths.as_json(tally.lengths),
    )
    TenantCount.objects.bulk_create(
        [
            TenantCount(
                log=log, tenant=tenant, requests=each.requests, inside=each.inside, first_inside=each.first,
                last_inside=each.last, leaking=each.standing[Judged.LEAKING],
                unknown=each.standing[Judged.UNKNOWN],
            )
            for tenant, each in tally.tenants.items()
        ],
        batch_size=2_000,
    )  # fmt: skip
    for hit in tally.hits:
        hit.log = log
    RequestHit.objects.bulk_create(tally.hits, batch_size=5_000)
    buckets = tally.prefill.buckets()
    PrefillBucket.objects.bulk_create(
        [PrefillBucket(log=log, low=b.low, high=b.high, n=b.n, p5=b.p5) for b in buckets]
    )
    notify_too_fast(log, too_fast(buckets))
    record(
        actor=actor,
        kind="request_log.imported",
        subject=f"deployment:{deployment.slug}",
        digest=source.sha256,
    )
    return log


def known_tenants(deployment: Deployment) -> dict[str, str]:
    """Keyed hash -> name, of the tenants that the fleet file names for this deployment."""
    names = Tenant.objects.filter(deployment=deployment).values_list("name", flat=True).distinct()
    return {keyed("tenant", deployment, name): name for name in names}
