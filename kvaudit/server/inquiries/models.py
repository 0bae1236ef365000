"""The models of the three packages, where Django looks for them."""

from __future__ import annotations

from kvaudit.server.inquiries.exports.models import Export, ExportKind
from kvaudit.server.inquiries.request_logs.models import (
    LogImport,
    LogPart,
    PrefillBucket,
    RequestHit,
    RequestLog,
    TenantCount,
)
from kvaudit.server.inquiries.saved_views.models import SavedView

__all__ = (
    "Export",
    "ExportKind",
    "LogImport",
    "LogPart",
    "PrefillBucket",
    "RequestHit",
    "RequestLog",
    "SavedView",
    "TenantCount",
)
