"""stub replaced below"""

from __future__ import annotations
import torch
from learners.training import Engine, SequentialEngine


def create_engine(name: str, device: torch.device) -> Engine:
    return SequentialEngine()
