"""The page on the fleet file shows a file that can be read."""

import re
from pathlib import Path

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.auditor.fleetfile.from_yaml import DEPLOYMENT_FIELDS, NODE_FIELDS, PLAN_FIELDS, TENANT_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "fleet-file.md").read_text("utf-8")


def test_the_example_is_valid():
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    assert parse_fleet(example).problems == ()


def test_every_field_is_on_the_page():
    fields = (*DEPLOYMENT_FIELDS, *NODE_FIELDS, *PLAN_FIELDS, *TENANT_FIELDS)
    assert [name for name in fields if not re.search(rf"\b{name}\b", PAGE)] == []
