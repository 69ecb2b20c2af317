"""A loaded model: its task, its instances, and how many of its requests are not answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acl.execution._model import Model
from acl.serving._tally import Costs

if TYPE_CHECKING:
    from acl.serving._tally import Tally

__all__ = ["Version"]


class Version:
    """One version of a model that an engine serves.

    Attributes
    ----------
    name, number : str, int
        The model's name, and which version of the engine's it is.
    models : list of acl.Model
        Its instances.
    jobs : int
        Its requests that are accepted and not over; under the engine's lock.
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
        """The instance for a lane."""
        return self.models[lane % len(self.models)]

    def close(self) -> None:
        """Unload; a second call does nothing."""
        for model in self.models:
            model.close()
