"""One product per file; every test in it uses deployments of its own. Imports are inside: Django is not
set up yet when this file is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.flows.product import Product


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    from tests.flows.product import Product

    opened = Product()
    try:
        yield opened.open()
    finally:
        opened.close()
