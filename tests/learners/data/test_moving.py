"""Tensors that go to another device together, with "meta" for one that is always there."""

import pytest
import torch
from torch import nn

from learners.data.moving import copy_into, to_device


def test_tensors_keep_types_shapes_and_order_and_those_already_there_are_returned_themselves():
    there = torch.zeros(2, device="meta")
    tensors = {"a": torch.ones(3, dtype=torch.uint8), "there": there, "b": torch.ones(5, 2, dtype=torch.float64).T}
    tensors |= {"none": torch.ones(0), "learnt": torch.ones(70, requires_grad=True), "last": torch.tensor(True)}
    arrived = to_device(tensors, torch.device("meta"))
    assert arrived["there"] is there
    kept = [(name, tensor.dtype, tensor.shape, "meta", False) for name, tensor in tensors.items()]
    assert [(n, t.dtype, t.shape, t.device.type, t.requires_grad) for n, t in arrived.items()] == kept


def test_a_state_of_another_shape_is_not_copied_into_a_module():
    with pytest.raises(ValueError, match=r"^weight: shape \(1, 3\), expected \(2, 3\)$"):
        copy_into(nn.Linear(3, 2), {"weight": torch.zeros(1, 3), "bias": torch.zeros(2)})
