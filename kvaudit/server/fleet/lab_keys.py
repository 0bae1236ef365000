"""The keys of the lab fleet, which are fake and the same everywhere: an import of it needs them, and a line that can be
pasted holds them. The server does not import the lab; a test holds this list to the lab's own."""

from __future__ import annotations

from collections.abc import Mapping

LAB_KEYS: Mapping[str, str] = {
    "KVAUDIT_LAB_TENANT_A": "sk-lab-tenant-a",
    "KVAUDIT_LAB_TENANT_B": "sk-lab-tenant-b",
    "KVAUDIT_LAB_NODE": "sk-lab-node",
}
