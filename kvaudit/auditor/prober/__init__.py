"""Sends requests as a tenant, within budget and consent, and says how they ended; active checks ask through it.

One client per tenant goes through the entry URL; the wire may be real sockets or the lab's virtual
clock. What a model generated is matched in memory and kept only sealed, as a keyed hash and a
length: nobody can tell a model's prose from a customer's.
"""

from kvaudit.auditor.prober.calibration import CannotAsk
from kvaudit.auditor.prober.network import NetworkProber
from kvaudit.auditor.prober.setup import Permission, limits_of, prober_for
from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.prober.wire import Wire

__all__ = ["CannotAsk", "NetworkProber", "Permission", "TokenUsage", "Wire", "limits_of", "prober_for"]
