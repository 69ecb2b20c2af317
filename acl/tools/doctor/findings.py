"""The class `Finding`: one result of the doctor."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Finding"]


@dataclass
class Finding:
    """The result of one examination.

    Attributes
    ----------
    what : str
        The examined object, such as ``"driver"``.
    verdict : str
        ``"ok"``, ``"note"`` (it works, with a restriction) or ``"bad"``.
    value : str
        What was found.
    advice : str
        What the user should do; empty only if the verdict is ok.
    times : dict
        Microseconds by name, from self-tests.
    """

    what: str
    verdict: str
    value: str
    advice: str = ""
    times: dict[str, float] = field(default_factory=dict)
