"""The model that a run leaves: its file says what it is, to vnetsim and to PyTorch alone."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import vnetsim
from learners.data import load_images
from vnetsim.api.model import TrainedModel
from vnetsim.learning.registry import find_learner
from vnetsim.runs.runner import context_of
from vnetsim.scenario.settings_file import structure

TINY = {
    "silos.count": 6,
    "data.train_images": 120,
    "data.test_images": 40,
    "learning.steps": 1,
    "learning.batch": 8,
    "gaussian.duration_s": 60,
    "compute.median_flops": 4e9,
    "device": "cpu",
}
LEARNERS = ("fedavg-classification", "flsimco", "fedco", "cdl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], vnetsim.Run]:
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
    experiment = vnetsim.Experiment(run.path / "experiment.toml")
    kind = find_learner(experiment.learner)
    return kind.create(context_of(experiment, "cpu"), structure(experiment.learning, kind.Settings, ""))


def documented() -> str:
    """Return the lines of the documentation that load a model without vnetsim."""
    text = textwrap.dedent(vnetsim.api.Run.model.__doc__ or "")
    found = re.search(r"as well::\n\n(.*?)\n\n *Here", text, re.DOTALL)
    assert found is not None
    return textwrap.dedent(found[1])


def images_like(model: TrainedModel) -> torch.Tensor:
    return torch.rand(5, *model.image_shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("learner", LEARNERS)
def test_it_is_the_learners_network(learner: str, trained: Callable[[str], vnetsim.Run]) -> None:
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


@pytest.mark.parametrize("learner", LEARNERS)
def test_pytorch_alone_loads_it_by_the_documented_lines(
    learner: str, trained: Callable[[str], vnetsim.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = documented()
    assert "vnetsim" not in code.replace('metadata()["vnetsim"]', "")
    statements = [line for line in code.splitlines() if line and not line.lstrip().startswith(("import", "from"))]
    assert len(statements) <= 11
    run = trained(learner)
    monkeypatch.chdir(run.path.parent)
    model = run.model()
    space: dict[str, Any] = {"images": images_like(model)}
    exec(code, space)
    assert torch.equal(space["result"], model(space["images"]))
    told = space["about"]
    assert (told["encoder"], told["round"]) == (model.encoder, 2)
    assert told["returns"] == model.returns


def test_it_scores_what_the_run_measured(trained: Callable[[str], vnetsim.Run]) -> None:
    run = trained("fedavg-classification")
    experiment = vnetsim.Experiment(run.path / "experiment.toml")
    data = load_images(experiment.data, streams=context_of(experiment, "cpu").streams.child("data"))
    model = run.model()
    with torch.no_grad():
        found = float((model(data.test).argmax(dim=1) == data.test_labels).double().mean())
    assert found == run.metrics.filter(name="accuracy")["value"][-1]
    assert model.batchnorm == "carried"
    torch.testing.assert_close(model.mean.flatten(), torch.tensor(data.mean))


def test_statistics_are_estimated_where_the_run_did_so(trained: Callable[[str], vnetsim.Run]) -> None:
    run = trained("cdl")
    model = run.model()
    assert model.batchnorm.startswith("to be estimated")
    images = images_like(model)
    before = model(images)
    model.estimate_statistics(images)
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
    return vnetsim.Run(tmp_path)


def metadata_of(run: vnetsim.Run) -> str:
    content = (run.path / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"].keys() == {"vnetsim"}, "several would come in any order"
    return str(header["__metadata__"]["vnetsim"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told["steps"].append(["x", "load", "", ["images"], {}]), "no method that a step may call: load"),
        (lambda told: told["steps"].append(["x", "init", "x.", ["images"], {}]), "no layer of torch.nn: init"),
        (lambda told: told["steps"].append(["x", "Linear", "x.", ["images"], {}]), "what does not fit"),
        (lambda told: told["steps"][0].pop(), "what does not fit"),
        (lambda told: told.pop("mean"), "what does not fit"),
        (lambda told: told.pop("steps"), "does not say how its network is built"),
    ],
)
def test_a_file_that_was_altered_runs_nothing(
    change: Callable[[dict[str, Any]], object],
    message: str,
    trained: Callable[[str], vnetsim.Run],
    tmp_path: Path,
) -> None:
    with pytest.raises(vnetsim.InputError, match=message):
        altered(trained("fedavg-classification"), tmp_path, change).model()
    assert altered(trained("fedavg-classification"), tmp_path, len).model().round == 2


def test_other_files_are_told(tmp_path: Path, trained: Callable[[str], vnetsim.Run]) -> None:
    save_file(load_file(trained("cdl").path / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(vnetsim.InputError, match=r"load the tensors with safetensors.torch.load_file"):
        vnetsim.Run(tmp_path).model()
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(vnetsim.InputError, match=r"model\.safetensors: unreadable"):
        vnetsim.Run(tmp_path).model()
