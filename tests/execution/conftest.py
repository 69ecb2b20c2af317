"""The model of the tests that wait for runs or stop them."""

from collections.abc import Iterator

import numpy as np
import pytest
from support.requests import small_model

import acl


@pytest.fixture
def model() -> Iterator[acl.Model]:
    with acl.Model(small_model().to_bytes()) as loaded:
        loaded(np.ones((2, 8), np.float32))     # the first run makes the output shapes known
        yield loaded
