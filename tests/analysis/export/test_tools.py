"""What TensorBoard and SUMO's tools take, read back."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from small_runs import events_in

import vnetsim
from vnetsim.storage.run_directory import RunDirectory

pytest.importorskip("tensorboardX")


def test_tensorboard_of_a_comparison(small_comparison, tmp_path):
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData  # noqa: PLC0415

    vnetsim.export(small_comparison, tensorboard=tmp_path / "events")
    study = vnetsim.load(small_comparison)
    assert {path.name for path in (tmp_path / "events").iterdir()} == {run.path.name for run in study.runs.values()}
    for (arm, _, seed), run in study.runs.items():
        values = [(event.step, event.wall_time, one) for event in events_in(tmp_path / "events" / run.path.name)
                  for one in event.summary.value]  # fmt: skip
        found = {
            (one.tag, step): (time_s, one.simple_value) for step, time_s, one in values if one.HasField("simple_value")
        }
        for row in run.metrics.iter_rows(named=True):
            assert found[row["name"], row["round"]] == pytest.approx((row["time_s"], row["value"]), rel=1e-6)
        assert (
            sum(value for (tag, _), (_, value) in found.items() if tag == "committed") == run.rounds["committed"].sum()
        )
        plugins = [HParamsPluginData.FromString(one.metadata.plugin_data.content) for _, _, one in values
                   if one.metadata.plugin_data.plugin_name == "hparams"]  # fmt: skip
        settings = {key: value for one in plugins for key, value in one.session_start_info.hparams.items()}
        assert settings["learner"].string_value == arm
        assert settings["seed"].number_value == seed
        assert settings["round.quorum"].number_value == 3
        metrics = {info.name.tag for one in plugins for info in one.experiment.metric_infos}
        assert metrics == set(run.metrics["name"]), "the last scalars are the final metrics"


def test_floating_car_data_are_replayed(make_run, tmp_path):
    """Same vehicles, places and speeds; a window begins at the first step within the true one and ends at the last."""
    run = make_run(tmp_path / "run", vehicles=30, kind="mobility", vehicle_name='<a&"b {}>')
    record = RunDirectory(run)
    manifest = record.manifest()
    record.write_json("manifest.json", {**manifest, "traffic": {**manifest["traffic"], "step_s": 1.0}})
    to = tmp_path / "fcd.xml"
    vnetsim.export(run, fcd=to)
    true = record.read("windows").sort("vehicle_id")
    again = vnetsim.mobility(to, rsu="500,500:251", out=tmp_path / "again", progress=False).windows.sort("vehicle_id")
    assert again["vehicle_id"].to_list() == true["vehicle_id"].to_list()
    assert again["vehicle_type"].to_list() == true["vehicle_type"].to_list()
    assert again["enter_s"].to_list() == true["enter_s"].ceil().to_list()
    assert again["exit_s"].to_list() == true["exit_s"].floor().to_list()
    for new, old in zip(again.iter_rows(named=True), true.iter_rows(named=True), strict=True):
        paths = ["path_time_s", "path_x_m", "path_y_m", "path_speed_mps"]
        samples = list(zip(*(old[name] for name in paths), strict=True))
        on_time = np.array([sample for sample in samples if abs(sample[0] - round(sample[0])) < 1e-6])
        np.testing.assert_allclose(np.array([new[name] for name in paths]).T, on_time, rtol=0, atol=1e-6)


def test_sumos_trace_exporter_reads_it(make_run, tmp_path):
    spec = find_spec("sumo")
    tool = Path(spec.submodule_search_locations[0]) / "tools" / "traceExporter.py" if spec else None
    if tool is None or not tool.is_file():
        pytest.skip("this SUMO has no traceExporter.py")
    run = make_run(tmp_path / "run", vehicles=5, kind="mobility")
    (recording,) = vnetsim.export(run, fcd=tmp_path / "fcd.xml")
    vehicles = recording.read_text().count("<vehicle ")
    for option, what in (("--gpx-output", "<trkpt "), ("--ns2mobility-output", " setdest ")):
        out = tmp_path / "trace"
        call = [sys.executable, str(tool), "--fcd-input", str(recording), option, str(out)]
        subprocess.run(call, check=True, timeout=300, capture_output=True)
        assert out.read_text().count(what) == vehicles > 5
