"""Arrays of other libraries as inputs of runs, through DLPack."""

from typing import Any

import numpy as np
import pytest
from support.requests import small_model

import acl

pytestmark = pytest.mark.usefixtures("no_leaks")


class Foreign:
    """An array of another library: its only public methods are `__dlpack__` and `__dlpack_device__`."""

    def __init__(self, whole: Any, place: int | None = None) -> None:
        self.whole, self.place, self.asked = whole, place, []

    def __dlpack_device__(self) -> tuple[int, int]:
        told: tuple[int, int] = self.whole.__dlpack_device__()
        return told if self.place is None else (self.place, 0)

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options.get("stream"))
        return self.whole.__dlpack__(**options)


X = np.arange(16, dtype=np.float32).reshape(2, 8)


def on_device(pool: acl.Pool, stream: acl.Stream) -> acl.Array:
    array = pool.empty(X.shape, "float32", stream)
    acl.copy(array.buffer, X, stream=stream)
    return array


@pytest.mark.parametrize("place", ["host", "device"])
def test_run_on_a_foreign_array_gives_the_result_for_its_numbers(place: str) -> None:
    with acl.Stream() as stream, acl.Pool(0) as pool, acl.Model(small_model().to_bytes()) as model:
        array = on_device(pool, stream)
        value = Foreign(X if place == "host" else array)
        np.testing.assert_array_equal(model(value, stream=stream)[0], X + 1)
        (total,) = acl.Op("Add")(value, value, stream=stream)
        np.testing.assert_array_equal(total.numpy(), 2 * X)
        if place == "device":
            assert value.asked == [stream.handle] * 3
        total.close()
        array.close()


def test_run_on_a_foreign_array_copies_no_device_memory() -> None:
    with acl.Stream() as stream, acl.Pool(0) as pool, acl.Model(small_model().to_bytes()) as model:
        pool.register(stream)
        with on_device(pool, stream) as array, model.run_async([Foreign(array)], stream)[0]:
            assert pool.stats().tags.get("inputs", 0) == 0
        pool.unregister(stream)


@pytest.mark.parametrize("run", ["model", "op"])
def test_run_on_memory_of_another_kind_of_device_is_refused(run: str) -> None:
    with acl.Stream() as stream, acl.Model(small_model().to_bytes()) as model:
        with pytest.raises(acl.InvalidArgumentError, match=r"input .*device type 2"):
            if run == "model":
                model(Foreign(X, 2), stream=stream)
            else:
                acl.Op("Relu")(Foreign(X, 2), stream=stream)


def test_run_on_memory_whose_kind_is_declared_wrongly_names_the_input() -> None:
    class Wrong(Foreign):
        def __dlpack__(self, **options: Any) -> Any:
            return self.whole.__dlpack__()

    with (acl.Stream() as stream, acl.Model(small_model().to_bytes()) as model,
          pytest.raises(acl.InvalidArgumentError, match=r"input .*must be an NPU's .*not of type 1")):
        model(Wrong(X, 12), stream=stream)
