"""What keeps a backup or a restore from being made."""

from __future__ import annotations


class BackupFault(RuntimeError):
    """It was not done and nothing was changed, unless the text says otherwise; the text is for whoever asked."""
