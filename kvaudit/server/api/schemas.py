"""Defines what goes in and out, for OpenAPI. Lines of lists are bare pydantic models: the schema of ninja looks
at every field of every instance in Python."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import BaseModel, ConfigDict, Field

from kvaudit.server.audits.state.tiers import Assessment

Verdict = Literal["pass", "fail", "inconclusive", "error"]
Tier = Literal["leak_confirmed", "unsafe", "not_verified", "ok"]


class NextStepLine(BaseModel):
    label: str
    address: str = Field(description="Below this server.")


class StatusFields(BaseModel):
    """The one status of a deployment, as every page says it."""

    tier: Tier = Field(description="Most urgent first: leak_confirmed, unsafe, not_verified, ok.")
    reason: str = Field(description="One sentence.")
    next_step: NextStepLine | None = Field(description="Null where nothing is to do.")


class Problem(Schema):
    """Every answer that is not 2xx."""

    error: str = Field(description="A sentence: what is wrong and what to do.")


def status_fields(said: Assessment) -> dict[str, Any]:
    """The values of `StatusFields`."""
    step = said.next_step
    return {
        "tier": said.tier.value,
        "reason": said.reason,
        "next_step": NextStepLine(label=step.label, address=step.address) if step else None,
    }


class GateQuestion(Schema):
    """The report of the gate that asks (``kvaudit gate --json``). Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    schema_: Literal["kvaudit.report/1"] = Field(alias="schema")
    verdict: Verdict


class GateReason(Schema):
    check: str
    verdict: Verdict
    summary: str


class GateAnswer(Schema):
    """What history says; the asker combines it with the own reading, the worse verdict wins."""

    deployment: str
    verdict: Verdict
    exit_code: int = Field(ge=0, le=3)
    summary: str
    reasons: list[GateReason]
    edge_limit: int | None = Field(description="Tokens, as declared to this server; null without one.")
    edge_limit_seen_refusing: bool = Field(description="Whether that limit was seen refusing.")
    tier: Tier = Field(description="Of the deployment's status: it looks at more than the gate does.")
    reason: str = Field(description="Of the deployment's status, one sentence.")
    next_step: NextStepLine | None = Field(description="Null where nothing is to do.")


class DeploymentLine(StatusFields):
    slug: str
    team: str
    verdict: Verdict
    warn: bool


class CheckLine(BaseModel):
    check: str
    verdict: Verdict = Field(description="What counts now: inconclusive when missing or expired.")
    said: Verdict | None = Field(description="The last verdict; null when it never ran.")
    warn: bool
    summary: str
    since: datetime | None
    last_confirmed: datetime | None
    expires_at: datetime | None
    expired_by: str


class DeploymentDetail(DeploymentLine):
    checks: list[CheckLine]
    missing: list[str]
    expired: list[str]
