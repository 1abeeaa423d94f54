"""The model that a run leaves: its file says what it is, to vnetsim and to PyTorch alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_checks import mark_all_only
from received import reseal
from safetensors.torch import load_file, save_file
from small_runs import TINY
from torch import nn
from torch.optim.swa_utils import update_bn

import vnetsim
from learners.data import load_images
from vnetsim.api.model import TrainedModel
from vnetsim.random_streams import Streams
from vnetsim.runs.assembly import assemble

LEARNERS = ("fedavg-classification", "flsimco", "fedco", "cdl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str], vnetsim.Run]:
    """Gives a run of a learner; runs it once."""
    made: dict[str, vnetsim.Run] = {}

    def run(learner: str) -> vnetsim.Run:
        if learner not in made:
            folder = tmp_path_factory.mktemp("trained") / "first"
            more = {"learning.linear_probe": "never"} if learner in ("flsimco", "fedco") else {}
            given: dict[str, Any] = {"settings": {**TINY, **more}, "out": folder, "progress": False}
            made[learner] = vnetsim.run("gaussian", learner=learner, rounds=2, **given)
        return made[learner]

    return run


def learner_of(run: vnetsim.Run) -> Any:
    """Return the run's learner, made anew."""
    assembly = assemble(vnetsim.Experiment(run.path / "experiment.toml"))
    return assembly.make_learner(assembly.context("cpu"))[0]


def images_like(model: TrainedModel) -> torch.Tensor:
    return torch.rand(5, *model.image_shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("learner", mark_all_only(LEARNERS))
def test_it_is_the_learners_network(learner, trained):
    run = trained(learner)
    model, network = run.model(), learner_of(run).describe().network
    assert isinstance(model, nn.Module)
    tensors = load_file(run.path / "model.safetensors")
    network.module.load_state_dict({name: tensors[name] for name in network.module.state_dict()})
    assert model.network.state_dict().keys() == network.module.state_dict().keys()
    images = images_like(model)
    with torch.no_grad():
        given = (images - model.mean) / model.std
        # the learner's lies otherwise in memory, and is summed in another order
        torch.testing.assert_close(model(images), network.module.eval()(given), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.features(images), network.module.features(given), rtol=1e-4, atol=1e-5)
        assert torch.equal(model((images * 255).to(torch.uint8)), model((images * 255).to(torch.uint8) / 255))
    assert (model.round, model.training) == (2, False)
    assert model.encoder == run.learner["encoder"]
    assert list(model.classes) == run.silos["class_name"].unique(maintain_order=True).to_list()
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_it_scores_what_the_run_measured(trained):
    run = trained("fedavg-classification")
    experiment = vnetsim.Experiment(run.path / "experiment.toml")
    data = load_images(experiment.data, streams=Streams(seed=experiment.seed).child("learner", "data"))
    model = run.model()
    with torch.no_grad():
        found = float((model(data.test).argmax(dim=1) == data.test_labels).double().mean())
    assert found == run.metrics.filter(name="accuracy")["value"][-1]
    assert model.batchnorm == "carried"
    torch.testing.assert_close(model.mean.flatten(), torch.tensor(data.mean))


def test_statistics_are_estimated_where_the_run_did_so(trained):
    run = trained("cdl")
    model = run.model()
    assert model.batchnorm.startswith("to be estimated")
    images = images_like(model)
    before = model(images)
    update_bn([images], model)
    assert not torch.equal(model(images), before)
    assert not model.training
    first = model.get_submodule("network.trunk.stage1.residual.bn1")
    seen = model.get_submodule("network.trunk.pool")(model.get_submodule("network.trunk.conv1")(images * 2 - 1))
    torch.testing.assert_close(first.running_mean, seen.mean(dim=(0, 2, 3)))


def altered(run: vnetsim.Run, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> vnetsim.Run:
    """Return a run that is only a model, whose metadata were changed."""
    told = json.loads(metadata_of(run))
    change(told)
    save_file(load_file(run.path / "model.safetensors"), tmp_path / "model.safetensors", {"vnetsim": json.dumps(told)})
    reseal(tmp_path)
    return vnetsim.Run(tmp_path)


def metadata_of(run: vnetsim.Run) -> str:
    content = (run.path / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"].keys() == {"vnetsim"}, "several would come in any order"
    return str(header["__metadata__"]["vnetsim"])


DEEP = "[" * 100_000
HUGE = 10**400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.update(encoder="resnet18"), "its tensors are not those of the network"),
        (lambda told: told.update(network="Encoder"), "its tensors are not those of the network"),
        (lambda told: told.update(network="os.system"), "does not come with vnetsim"),
        (lambda told: told.update(encoder="mine.py:Own"), "does not come with vnetsim"),
        (lambda told: told.pop("mean"), "mean: it has no default"),
        (lambda told: told.update(mean=[HUGE, 1.0, 1.0]), "mean"),
        (lambda told: told.update(round=1e999), "round: expected a whole number"),
    ],
)
def test_a_file_that_was_altered_is_refused_in_one_line(change, message, trained, tmp_path):
    with pytest.raises(vnetsim.InputError, match=message) as refused:
        altered(trained("fedavg-classification"), tmp_path, change).model()
    assert "\n" not in str(refused.value)
    assert altered(trained("fedavg-classification"), tmp_path, len).model().round == 2


OWN = """
from dataclasses import dataclass
from torch import nn
from torch.optim.swa_utils import update_bn

@dataclass(frozen=True, kw_only=True)
class Plain:
    name = "plain"
    source = "a test"

    def build(self) -> tuple[nn.Module, int]:
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU()), 8
"""


def test_the_user_passes_an_encoder_of_their_own(tmp_path):
    file = tmp_path / "plain.py"
    file.write_text(OWN)
    named = f"{file}:Plain"
    learner: Any = {"learner": "fedavg-classification", "learning__encoder": named, "rounds": 1}
    run = vnetsim.run("gaussian", out=tmp_path / "run", progress=False, settings=TINY, **learner)
    with pytest.raises(vnetsim.InputError, match="pass the encoder's class"):
        run.model()
    model = run.model(named)
    images = images_like(model)
    assert model(images).shape == (5, 10)
    space: dict[str, Any] = {"__name__": "notebook"}
    exec(OWN, space)
    assert torch.equal(run.model(space["Plain"])(images), model(images))
    built = learner_of(run).describe().network.module
    assert torch.equal(run.model(built)(images), model(images))
    with pytest.raises(vnetsim.InputError, match="expected the encoder's class"):
        run.model(3)  # type: ignore[arg-type]
    with pytest.raises(vnetsim.InputError, match="its tensors are not those of the network"):
        run.model(nn.Linear(2, 2))


def test_other_files_are_told(tmp_path, trained):
    save_file(load_file(trained("cdl").path / "model.safetensors"), tmp_path / "model.safetensors")
    reseal(tmp_path)
    with pytest.raises(vnetsim.InputError, match=r"load the tensors with safetensors.torch.load_file"):
        vnetsim.Run(tmp_path).model()
    tensors = load_file(trained("cdl").path / "model.safetensors")
    save_file(tensors, tmp_path / "model.safetensors", {"vnetsim": DEEP})
    reseal(tmp_path)
    with pytest.raises(vnetsim.InputError, match="unreadable"):
        vnetsim.Run(tmp_path).model()
    (tmp_path / "model.safetensors").write_bytes(b"no")
    reseal(tmp_path)
    with pytest.raises(vnetsim.InputError, match=r"model\.safetensors: unreadable"):
        vnetsim.Run(tmp_path).model()
