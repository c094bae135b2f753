#!/usr/bin/env python3
"""Makes shapes/: pictures of circles, squares and triangles before a noisy background, and where the shape is in each (masks)."""

import pathlib

import numpy as np
from PIL import Image

SIZE, FINE = 48, 4  # drawn four times as large, for smooth edges
NUM = {"train": 20, "test": 10}
KINDS = ["circle", "square", "triangle"]


def inside(kind: str, random: np.random.Generator) -> np.ndarray:
    """A shape somewhere in the picture, of some size and angle: which of its fine points are within it."""
    radius = random.uniform(8, 18)
    center = random.uniform(radius, SIZE - radius, 2)
    angle = random.uniform(0, 2 * np.pi)
    y, x = (np.indices((SIZE * FINE, SIZE * FINE)) + 0.5) / FINE - center[:, None, None]
    if kind == "circle":
        return x**2 + y**2 < radius**2
    corners = 4 if kind == "square" else 3
    within = np.ones(x.shape, bool)
    for i in range(corners):
        turned = angle + 2 * np.pi * i / corners
        within &= x * np.cos(turned) + y * np.sin(turned) < radius * np.cos(np.pi / corners)
    return within


def main() -> None:
    random = np.random.default_rng(0)
    folder = pathlib.Path(__file__).parent / "shapes"
    for split, count in NUM.items():
        for number, kind in enumerate(KINDS):
            for part in ["images", "masks"]:
                (folder / split / part / kind).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                within = inside(kind, random)
                share = within.reshape(SIZE, FINE, SIZE, FINE).mean((1, 3))
                back, front = random.uniform(0, 255, (2, 3))
                front = np.where(np.abs(front - back) < 60, (front + 128) % 256, front)
                image = share[..., None] * front + (1 - share[..., None]) * back + random.normal(0, 12, (SIZE, SIZE, 3))
                Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / split / "images" / kind / f"{i:02}.jpg", quality=85)
                mask = np.where(share > 0.5, number + 1, 0).astype(np.uint8)
                Image.fromarray(mask).save(folder / split / "masks" / kind / f"{i:02}.png", optimize=True)


if __name__ == "__main__":
    main()
