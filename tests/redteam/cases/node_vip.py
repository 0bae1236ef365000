"""A node's URL is a service in front of replicas: with each connection another one answers. One has a small pool, and
whoever reads once passes the others for all of them.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.case import UNIFIED, Case, Lab
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check, Happened

SMALL = Lab(("none",), {"unified": True, "prefill_pool": 5_328})


class OneOfThemPerConnection(Gateway):
    connections = 0

    def connected(self) -> ASGIApp:
        replica = self.connections % len(self.labs)
        self.connections += 1
        if replica:
            self.lengths.append(replica)
        return self.labs[replica]


def _case(name: str, *others: Lab) -> Case:
    return Case(
        name,
        "leak",
        (Happened(1), Check("pool", "fail|inconclusive")),
        OneOfThemPerConnection,
        labs=(UNIFIED, *others),
        before="nodes",
        checks=("pool",),
        fast=True,
    )


CASES = (_case("node_vip", SMALL), _case("node_vip/four", UNIFIED, UNIFIED, SMALL))
