"""What the record of a run and its page say about a task: facts in words, and images that vehicles took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.motion import motion_blur
from learners.data.sets import ImageSet
from learners.engines.programs import Tensors
from learners.engines.recorded import RecordedEngine
from vnetsim.learning import PathFrames, Sights
from vnetsim.learning.kinds import DATA_SETS
from vnetsim.plugins import plugin_errors

if TYPE_CHECKING:
    from learners.tasks.task import Task

Kernels = Callable[[Tensor], Tensor]
"""Returns the length of the motion blur (px) of images taken at speeds (m/s), both of shape (N,)."""


def describe_in_words(task: Task, data: Any) -> dict[str, str]:
    """Return facts on network, images and engine for the record, by title; an empty text is a fact to leave out."""
    sizes, picture = task.silos.sizes, task.picture
    in_no_silo = len(data.train) - sum(sizes)
    return {
        "Forward pass": f"{task.flop / 1e6:.4g} MFLOP per {picture} (convolutions and linear layers)",
        "Model": f"{payload_bytes(task.sent(task.network.state_dict())) / 1e6:.4g} MB each way",
        f"{picture.capitalize()}s per silo": f"{min(sizes)} to {max(sizes)}, {sum(sizes)} in all"
        + f"; {in_no_silo} more are in no silo" * (in_no_silo > 0),
        f"First {picture}s": _describe_growth(task, data),
        f"Test {picture}s": f"{len(data.test)}, held by no vehicle",
        **getattr(data, "facts", {}),  # a user's own task has none
        "Engine": task.engine.remark if isinstance(task.engine, RecordedEngine) else "",
    }


def _describe_growth(task: Task, data: Any) -> str:
    """Return in words when silos have taken their first batch; empty if the times of images are unknown."""
    times_s = getattr(data, "train_times_s", None)
    if times_s is None:
        return ""
    batch, picture = task.settings.batch, task.picture
    ready_s = [float(times_s[rows].sort().values[:batch][-1]) for rows in task.silos.rows]
    return (
        f"a silo has taken its first {batch} {picture}s at {np.median(ready_s):.4g} s of the traffic (median, last "
        f"silo at {max(ready_s):.4g} s); a vehicle that trains earlier has them nevertheless"
    )


def payload_bytes(tensors: Tensors) -> int:
    """Return the size of tensors on the radio link (bytes)."""
    return sum(tensor.nbytes for tensor in tensors.values())


def image_sources(
    data: Any, kernels_px: Kernels
) -> tuple[Callable[[Sequence[str], float], PathFrames] | None, Callable[[], Sights] | None]:
    """Return the functions ``path_frames`` and ``sights`` of a ``Description``; None if no vehicle took the images."""
    frames = None if getattr(data, "film", None) is None else partial(_path_frames, data, kernels_px)
    return frames, None if getattr(data, "train_at_m", None) is None else partial(_sights, data, kernels_px)


def _path_frames(data: Any, kernels_px: Kernels, vehicles: Sequence[str], until_s: float) -> PathFrames:
    """Return the vehicles' camera frames until a time (s), each sharp and blurred by its speed."""
    with plugin_errors(DATA_SETS.name, data.name, "for the frames of vehicles"):
        film = data.film(vehicles, until_s)
    kernel_px = kernels_px(torch.from_numpy(film.speed_mps.astype(np.float32)))
    return PathFrames(
        vehicles=np.array(film.vehicles, dtype=np.str_),
        mean_mps=film.mean_mps,
        path=film.path,
        images=blur_for_page(film.images, torch.zeros(len(kernel_px))),
        blurred=blur_for_page(film.images, kernel_px),
        time_s=film.time_s,
        speed_mps=film.speed_mps,
        kernel_px=kernel_px.to(torch.float64).numpy(),
        label=film.label,
    )


def _sights(data: Any, kernels_px: Kernels) -> Sights:
    """Return where the training images were taken, and what they show; the label is -1 in a set without classes."""
    kernel_px = kernels_px(data.train_speeds_mps)
    labels = data.train_labels if isinstance(data, ImageSet) else torch.full((len(kernel_px),), -1)
    return Sights(
        x_m=data.train_at_m[:, 0].numpy(),
        y_m=data.train_at_m[:, 1].numpy(),
        time_s=data.train_times_s.to(torch.float64).numpy(),
        speed_mps=data.train_speeds_mps.to(torch.float64).numpy(),
        kernel_px=kernel_px.to(torch.float64).numpy(),
        angle=data.train_angles.to(torch.float64).numpy(),
        label=labels.numpy(),
    )


def blur_for_page(images: Tensor, kernel_px: Tensor) -> NDArray[np.uint8]:
    """Return uint8 images (N, C, H, W), each blurred with its own kernel length (px), (N,), as (N, H, W, C)."""
    blurred = motion_blur(images.to(torch.float32) / 255, kernel_px).mul(255).round().to(torch.uint8)
    return blurred.permute(0, 2, 3, 1).contiguous().numpy()
