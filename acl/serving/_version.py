"""A version of a loaded model: its task, its instances, and the number of its unfinished requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acl.execution._model import Model
from acl.serving._tally import Costs

if TYPE_CHECKING:
    from acl.serving._tally import Tally

__all__ = ["Version"]


class Version:
    """A model as one `Engine.load` loaded it.

    Attributes
    ----------
    name, number : str, int
        Name of the model, and number of the version.  All versions in an engine have different numbers.
    models : list of acl.Model
        The instances, which share their weights.
    jobs : int
        Number of its accepted requests that are not over; guarded by the engine's lock.
    """

    def __init__(self, name: str, number: int, task: Any, tally: Tally) -> None:
        self.name, self.number, self.task, self.tally = name, number, task, tally
        self.costs = Costs()
        self.models: list[Model] = []
        self.jobs = 0

    def load(self, instances: int, device: int) -> None:
        """Load the instances, which share their weights."""
        source = self.task.model()
        if instances == 1:
            self.models = [Model(source, device, name=self.name)]
        else:
            self.models = Model.instances(source, instances, device, name=self.name)

    def instance(self, lane: int) -> Model:
        """Return the instance that the lane with this number uses."""
        return self.models[lane % len(self.models)]

    def close(self) -> None:
        """Unload the instances; a second call does nothing."""
        for model in self.models:
            model.close()
