"""Compliance for a file and for paper: a line per cell, and by whose word those stand that checks do not decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kvaudit.server.checklists.evaluation import Cell, Claim, Status
from kvaudit.server.checklists.matrix import Matrix, MatrixRow
from kvaudit.server.checklists.models import Attestation, Waiver

COLUMNS = (
    "deployment", "team", "owner", "contact", "item", "title", "status", "checks_say", "since_utc",
    "until_utc", "warning", "reason", "attested_by", "waived_by", "waiver_requested_by", "deployment_status",
    "overdue_since_utc", "as_of_utc", "claim", "claim_reason",
)  # fmt: skip


def export_rows(matrix: Matrix, rows: Sequence[MatrixRow]) -> Iterator[Sequence[object]]:
    """A line per cell, header first; the same cells as on the page."""
    yield COLUMNS
    words = words_of(claims_of(rows))
    for row in rows:
        each = row.deployment
        for key, cell in row.cells.items():
            what, claim = claim_of(cell) or ("", None)
            yield (
                each.slug,
                each.team.slug,
                each.owner,
                each.contact,
                key,
                cell.item.title,
                cell.status.value,
                cell.verdict.value if cell.verdict else "",
                utc(cell.since),
                utc(cell.until),
                "yes" if cell.warn else "",
                cell.reason,
                claim.author if claim and what == "attestation" else "",
                claim.approver if claim and what == "waiver" else "",
                claim.author if claim and what == "waiver" else "",
                row.status.value,
                utc(row.overdue_since),
                utc(matrix.moment),
                f"{what} {claim.pk}" if claim else "",
                words[what, claim.pk] if claim else "",
            )


def claim_of(cell: Cell) -> tuple[str, Claim] | None:
    """("waiver" or "attestation", the claim) by which the cell stands; None where checks decide."""
    if cell.status is Status.WAIVED and cell.waiver is not None:
        return "waiver", cell.waiver
    if cell.status is Status.ATTESTED and cell.attestation is not None:
        return "attestation", cell.attestation
    return None


@dataclass(frozen=True, slots=True)
class ClaimedCell:
    """A cell that stands by a claim."""

    row: MatrixRow
    key: str
    what: str
    claim: Claim


def claims_of(rows: Sequence[MatrixRow]) -> list[ClaimedCell]:
    """Every cell of these rows that stands by somebody's word; no other cell is made for it."""
    return [
        ClaimedCell(row, key, *claim)
        for row in rows
        for key, status in row.statuses.items()
        if status in (Status.WAIVED, Status.ATTESTED) and (claim := claim_of(row.cells[key]))
    ]


def words_of(held: Sequence[ClaimedCell]) -> Mapping[tuple[str, int], str]:
    """(what, key) -> the reason of each waiver and the statement of each attestation. Two queries."""
    words: dict[tuple[str, int], str] = {}
    for what, model, column in (("waiver", Waiver, "reason"), ("attestation", Attestation, "statement")):
        keys = {claim.claim.pk for claim in held if claim.what == what}
        texts = model._default_manager.filter(pk__in=keys).values_list("pk", column)
        words |= {(what, pk): text for pk, text in texts}
    return words


@dataclass(frozen=True, slots=True)
class CellByWord:
    """A cell that stands by somebody's word, for the print: where, whose, why, until when."""

    what: str
    pk: int
    place: str
    item: str
    author: str
    approver: str
    words: str
    until: datetime | None


def cells_by_word(rows: Sequence[MatrixRow]) -> list[CellByWord]:
    """Every cell of these rows that does not stand by checks alone."""
    held = claims_of(rows)
    words = words_of(held)
    return [
        CellByWord(
            claim.what, claim.claim.pk, claim.row.deployment.slug, claim.key, claim.claim.author, claim.claim.approver,
            words[claim.what, claim.claim.pk], claim.row.cells[claim.key].until,
        )
        for claim in held
    ]  # fmt: skip


def utc(moment: datetime | None) -> str:
    """ISO 8601 in UTC; "" for none."""
    return "" if moment is None else moment.astimezone(UTC).isoformat()
