"""Stores evidence by content: the same bytes once, whoever saw them how often.

A passive pass keeps what was read and where it was read (one document per node, which does not
change while the node does not). Full answers are kept when a verdict or a fingerprint changed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.verdict import Evidence as Seen
from kvaudit.server.audits.evidence.canonical import clean, clean_text
from kvaudit.server.audits.models import Evidence, RunEvidence
from kvaudit.server.fleet.facts import facts_as_json


@dataclass(frozen=True, slots=True)
class EvidenceOfRun:
    """A piece of evidence that a run keeps."""

    run_id: int
    seen: Seen
    node_name: str = ""


def reading_of(node: NodeSeen) -> Seen | None:
    """What was read of a node and the lines it came from, as evidence; None when nothing was."""
    if node.facts is None:
        return None
    document = clean(
        {"node": node.name, "url": node.url, "declared_role": node.role, **facts_as_json(node.facts)}
    )
    body = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest()
    return Seen("reading", digest, f"read from {node.url}", body, "application/json")


def store_evidence(items: Iterable[EvidenceOfRun]) -> None:
    """Store bodies that are not there yet and link each to its run. A body that does not match its
    name is stored under its own; items without a body are only mentioned, and are skipped here."""
    wanted = [(item, _name(item.seen.body), item.seen.body) for item in items if item.seen.body is not None]
    if not wanted:
        return
    names = {name for _, name, _ in wanted}
    there = set(Evidence.objects.filter(pk__in=names).values_list("pk", flat=True))
    new = {
        name: Evidence(
            sha256=name,
            content_type=clean_text(item.seen.content_type, 100),
            size=len(body),
            body=zlib.compress(body, 6),
        )
        for item, name, body in wanted
        if name not in there
    }
    # In order of name: two workers that keep the same new bodies wait for each other, not in a circle.
    Evidence.objects.bulk_create([new[name] for name in sorted(new)], ignore_conflicts=True)
    RunEvidence.objects.bulk_create(
        [
            RunEvidence(
                run_id=item.run_id,
                evidence_id=name,
                kind=item.seen.kind,
                source=clean_text(item.seen.source, 300),
                node_name=clean_text(item.node_name, 120),
            )
            for item, name, _ in wanted
        ],
        ignore_conflicts=True,
    )


def body_of(evidence: Evidence) -> bytes:
    """The stored bytes. Raises ValueError when they are not what their name says."""
    if evidence.encoding != "zlib":
        raise ValueError(
            f"Evidence {evidence.pk} is stored as {evidence.encoding!r}, which nothing here reads."
        )
    opener = zlib.decompressobj()
    body = opener.decompress(bytes(evidence.body), evidence.size + 1)
    if _name(body) != evidence.pk:
        raise ValueError(f"Evidence {evidence.pk} is not what was stored: its bytes have another digest.")
    return body


def _name(body: bytes | None) -> str:
    return hashlib.sha256(body or b"").hexdigest()
