from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.product import Product, running


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with its demo cluster, every replica healthy."""
    with running(Product(tmp_path_factory.mktemp("product"))) as product:
        product.wait_replicas_healthy(3)
        yield product
