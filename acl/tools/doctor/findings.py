"""What the doctor has to say of one thing."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Finding"]


@dataclass
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    what : str
        The thing.
    verdict : str
        ``"ok"``, ``"note"`` (works, but know it) or ``"bad"``.
    value : str
        What was found.
    advice : str
        What to do about it; always there unless the verdict is ok.
    times : dict
        Microseconds by name, of self-tests.
    """

    what: str
    verdict: str
    value: str
    advice: str = ""
    times: dict[str, float] = field(default_factory=dict)
