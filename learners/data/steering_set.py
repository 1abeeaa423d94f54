"""A set of road images with steering angles, held in memory: what every steering learner starts from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from learners.data.image_set import require_images


@dataclass(frozen=True, kw_only=True, eq=False)
class SteeringSet:
    """Training and test frames with their steering angles, on the CPU.

    Frames of one drive that follow each other closely are never on both sides: what is held out is whole drives, or
    stretches of time with a gap before and behind them.

    Args:
        name: name of the set, as ``data.name`` has it.
        train: training frames, uint8, shape (N, 1, H, W).
        train_angles: their steering angles in [-1, 1], left negative, float32, shape (N,).
        train_drives: which drive a frame is of, int64, shape (N,).
        train_blocks: which stretch of time it is of, int64, shape (N,); a block belongs to one drive, and
            its frames follow each other.
        test: frames that no silo ever holds, uint8, shape (M, 1, H, W).
        test_angles: their steering angles, float32, shape (M,).
        pixels: how pixels of more than 8 bits came to 8, for the record; empty where there were none.
    """

    name: str
    train: Tensor
    train_angles: Tensor
    train_drives: Tensor
    train_blocks: Tensor
    test: Tensor
    test_angles: Tensor
    pixels: str = ""

    def __post_init__(self) -> None:
        require_images(self.train, 1)
        require_images(self.test, 1)
