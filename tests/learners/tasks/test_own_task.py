"""A task of one's own: what its data and measures may be, and that each fault is named before a vehicle trains."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learners.tasks.own import Examples, OwnTask, OwnTaskSettings
from vnetsim.errors import InputError
from vnetsim.learning import LearnerContext, Series

NewContext = Callable[..., LearnerContext]
MAE = Series(name="mae", label="Error", unit="MAE", caption="Mean absolute error.")


def examples(**changes: Any) -> Examples:
    whole = {
        "train": torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1).expand(12, 3, 4, 4),
        "targets": torch.arange(12) / 255,
        "test": torch.zeros(5, 3, 4, 4, dtype=torch.uint8),
        "test_targets": torch.zeros(5),
        "silos": np.array_split(np.arange(12), 6),
    }
    return Examples(**(whole | changes))


class Brightness(OwnTask):
    metrics = (MAE,)
    changes: Mapping[str, Any] = {}
    measured = "mae"

    def data(self, context: LearnerContext) -> Examples:  # noqa: ARG002
        return examples(**self.changes)

    def model(self, examples: Examples) -> nn.Module:  # noqa: ARG002
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 1))

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG002
        return (model(batch["images"])[:, 0] - batch["targets"]).square().mean()

    def measure(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        return {self.measured: float((outputs[:, 0] - targets).abs().mean())}


def task(new_context: NewContext, **attributes: Any) -> OwnTask:
    kind = type("Own", (Brightness,), attributes)
    return kind(new_context(), OwnTaskSettings())  # type: ignore[no-any-return]


def test_what_is_right_is_taken_and_measured(new_context):
    own = task(new_context)
    assert set(own.evaluate(own.initial_state(), final=True)) == {"mae"}


@pytest.mark.parametrize("labelled", [False, True])
def test_the_record_says_what_it_is_made_of(labelled, new_context):
    frames = torch.zeros(12, 2, 4, 6, dtype=torch.uint8)
    labels = {"labels": torch.arange(12) % 2, "class_names": ("dark", "light")} if labelled else {}
    changes = {"train": frames, "test": frames[:5], **labels}
    own = task(new_context, changes=changes, model=lambda *_: nn.Sequential(nn.Flatten(), nn.Linear(48, 1)))
    described = own.describe({"Mine": "own"})
    assert described.network is not None
    assert (described.encoder, described.parameters, described.image_shape) == ("Sequential", 49, (2, 4, 6))
    assert described.class_names == (("dark", "light") if labelled else ())
    assert described.silo_label_counts.tolist() == [[1, 1] if labelled else []] * 6
    assert described.network.module is own.network
    assert (described.network.mean, described.network.std) == ((0.0, 0.0), (1.0, 1.0))
    assert described.network.returns == "what the task's loss and measure make of it"
    assert described.network.own_statistics
    assert described.facts == {
        "Forward pass": "9.6e-05 MFLOP per image (convolutions and linear layers)",
        "Model": "0.000196 MB each way",
        "Images per silo": "2 to 2, 12 in all",
        "Test images": "5, held by no vehicle",
        "Mine": "own",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": torch.zeros(12, 3, 4, 4)}, "train is torch.float32 of shape (12, 3, 4, 4), not torch.uint8 of"),
        ({"test": torch.zeros(5, 4, 4, dtype=torch.uint8)}, "test is torch.uint8 of shape (5, 4, 4), not torch.uint8"),
        ({"targets": torch.zeros(11)}, "11 targets for the 12 images of train"),
        ({"test_targets": torch.zeros(6)}, "6 targets for the 5 images of test"),
        ({"silos": np.array_split(np.arange(12), 5)}, "images for 5 silos; silos.count is 6"),
        ({"silos": [np.arange(2)] * 5 + [np.array([11, 12])]}, "silos hold rows 0 to 12 of training images 0 to 11"),
        ({"silos": [np.array([-1, 3])] * 6}, "silos hold rows -1 to 3 of"),
    ],
)
def test_data_that_do_not_fit_are_refused(changes, message, new_context):
    with pytest.raises(InputError) as refused:
        task(new_context, changes=changes)
    assert str(refused.value).startswith(f"task Own: {message}")


def test_a_measure_and_its_series_have_one_name(new_context):
    with pytest.raises(InputError, match=r"^task Own: it lacks metrics, a vnetsim\.learning\.Series for each"):
        task(new_context, metrics=())
    own = task(new_context, measured="mean_error")
    with pytest.raises(InputError, match=r"^task Own: measure returned mean_error, and metrics names mae alone\.$"):
        own.evaluate(own.initial_state(), final=True)
