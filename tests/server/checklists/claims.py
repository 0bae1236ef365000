"""Attestations and waivers as somebody would have left them, for tests of what they come to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from kvaudit.server.checklists.models import Attestation, Waiver
from tests.factories import a_user

EVERYTHING = (
    "pool", "version", "drift", "exposure", "rejection", "coherence", "accounting", "canary", "prefix",
    "concurrency", "session",
)  # fmt: skip


def an_attestation(deployment: Any = None, item: str = "D", **fields: Any) -> Attestation:
    now = timezone.now()
    return Attestation.objects.create(
        **{
            "deployment": deployment,
            "item": item,
            "statement": "Session slots are reset on release; capacity is twice the largest request.",
            "link": "https://wiki.example.org/slots",
            "author": fields.pop("author", None) or a_user(),
            "valid_from": now - timedelta(minutes=1),
            "expires_at": now + timedelta(days=30),
            **fields,
        }
    )


def a_waiver(deployment: Any = None, item: str = "1", *, decision: str = "approved", **fields: Any) -> Waiver:
    now = timezone.now()
    begins = fields.pop("valid_from", now - timedelta(minutes=1))
    return Waiver.objects.create(
        **{
            "deployment": deployment,
            "item": item,
            "reason": "The larger pool arrives with the next hardware; long prompts are refused meanwhile.",
            "requester": fields.pop("requester", None) or a_user(),
            "requested_at": begins - timedelta(hours=1),
            "expires_at": now + timedelta(days=30),
            "decision": decision,
            "decided_by": None if decision == "pending" else a_user(),
            "decided_at": None if decision == "pending" else begins,
            "valid_from": begins if decision == "approved" else None,
            **fields,
        }
    )
