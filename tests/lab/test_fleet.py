from __future__ import annotations

import json

from kvaudit.auditor.targets import parse_fleet
from kvaudit.lab.config import LabConfig
from kvaudit.lab.fleet import DEMOS, ENVIRONMENT, fleet_file
from tests.lab.asking import with_lab


def test_the_fleet_file_is_one_that_the_importer_takes():
    described = {}
    for demo in DEMOS:

        async def describe(lab):
            return lab.inside.described()

        config = LabConfig(node_key="sk-lab-node" if demo.node_key else "")
        described[demo.slug] = with_lab(describe, [demo.fault], config)
    text = json.dumps(fleet_file(described))
    fleet = parse_fleet(text)
    assert fleet.problems == ()
    assert [deployment.slug for deployment in fleet.deployments] == [
        "lab-leaking",
        "lab-fixed",
        "lab-shifting",
    ]
    assert not any(secret in text for secret in ENVIRONMENT.values()), "names of variables, never keys"
    keys = {tenant.key for tenant in LabConfig().tenants} | {"sk-lab-node"}
    assert set(ENVIRONMENT.values()) == keys
