"""The Session API page: every request that the check session may send, as it stands there, and who approved it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.server.fleet import session_plans
from kvaudit.server.fleet.models import Deployment, SessionApproval
from kvaudit.server.fleet.session_approval import approval_of, digest_of_session


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One request: which step it belongs to, and what is sent."""

    step: str
    method: str
    url: str
    body: str
    captured: str


@dataclass(frozen=True, slots=True)
class SessionPage:
    lines: Sequence[RequestLine]
    url: str
    digest: str
    set_by: str
    approval: SessionApproval | None
    earlier: Sequence[SessionApproval]


def session_page(deployment: Deployment) -> SessionPage:
    plan = session_plans.from_json(deployment.session)
    lines = []
    if plan is not None:
        base = plan.url.rstrip("/")
        lines = [
            RequestLine(
                name,
                step.method,
                base + step.path,
                step.body,
                ", ".join(f"{key} from {pointer}" for key, pointer in step.capture),
            )
            for name, steps in plan.steps
            for step in steps
        ]
        if plan.pool_path:
            lines.append(RequestLine("pool", "GET", base + plan.pool_path, "", ""))
    approvals = SessionApproval.objects.filter(deployment=deployment).select_related("approved_by")
    return SessionPage(
        lines=lines,
        url=plan.url if plan is not None else "",
        digest=digest_of_session(deployment.session),
        set_by=deployment.session_set_by,
        approval=approval_of(deployment),
        earlier=list(approvals.exclude(valid_to=None).order_by("-valid_from")[:20]),
    )
