"""The page's colours: groups that may touch differ for every kind of colour vision, and text is legible.

Colour vision deficiencies are modelled by matrices in linear RGB (Machado, Oliveira, Fernandes 2009, severity 1).
Differences of colours are CIE76 in Lab.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from acl.tools.view.page import web_file

VISION = {
    "full": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                        [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                        [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                        [0.004733, 0.691367, 0.303900]]),
}
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                   [0.0193339, 0.1191920, 0.9503041]])


def colours(theme: str) -> dict[str, str]:
    """Return the custom properties of a theme."""
    blocks = web_file("style.css").split(":root")
    block = blocks[1] if theme == "light" else next(one for one in blocks if one.startswith('[data-theme="dark"]'))
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour: str, vision: str) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear(colour), 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((float(TO_XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_the_groups_can_be_distinguished(theme: str, vision: str) -> None:
    palette = colours(theme)
    names = [*(f"group{i}" for i in range(10)), "rest"]
    gaps = {(a, b): float(np.linalg.norm(lab(palette[a], vision) - lab(palette[b], vision)))
            for a, b in itertools.combinations(names, 2)}
    worst = min(gaps, key=lambda pair: gaps[pair])
    assert gaps[worst] > 9, (worst, gaps[worst])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_page_has_enough_contrast(theme: str) -> None:
    palette = colours(theme)
    for ink, paper in itertools.product(("ink", "quiet", "alarm", "accent"), ("panel", "ground", "soft")):
        assert contrast(palette[ink], palette[paper]) >= 4.5, (ink, paper)


def test_dark_by_choice_is_dark_by_the_system() -> None:
    chosen = colours("dark")
    media = web_file("style.css").split("@media (prefers-color-scheme: dark)", 1)[1].split("} }", 1)[0]
    assert dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", media)) == chosen
