#!/bin/sh
# Builds the wheel and runs the main job, small, from it alone, outside the source tree.
# Environment: PYTHON, a python that has `build`; OTHER_PYTHONS, more that the wheel is tried with where they are
# installed; CONSTRAINTS, a constraints file or empty.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$source" && command -v "$PYTHON")
case $python in /*) ;; *) python=$source/$python ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
"$python" -m build --wheel --outdir "$work/dist" . >"$work/build.log" || { cat "$work/build.log"; exit 1; }
# the long description holds no link into the source tree
"$python" - "$work"/dist/*.whl <<'END'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
text = wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))).decode()
assert "\n\n# vnetsim\n" in text, "no long description"
assert wheel.getinfo("vnetsim/documentation.html").compress_size < 500_000
assert not re.search(r"\]\((?!https?:)", text), "a relative link"
END
unset PYTHONPATH
for tried in "$python" ${OTHER_PYTHONS:-}; do
    "$tried" -c '' 2>/dev/null || { echo "wheel: $tried is not installed here, not tried"; continue; }
    rm -rf "$work/venv" "$work/demo" "$work/mobility" "$work/run"
    "$tried" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet ${CONSTRAINTS:+--constraint "$source/$CONSTRAINTS"} "$work"/dist/*.whl
    cd "$work"
    venv/bin/vnetsim --version
    venv/bin/vnetsim learners
    venv/bin/vnetsim init demo
    venv/bin/vnetsim mobility demo/gaussian.toml --out mobility
    venv/bin/vnetsim run demo/intersection.sumocfg --rounds 2 --out run
    test -s run/report.html
    test -s run/model.safetensors
    venv/bin/python -c 'import vnetsim, pathlib; assert pathlib.Path(vnetsim.__file__).is_relative_to(pathlib.Path.cwd() / "venv")'
    echo "wheel: built, installed and ran outside the source tree with $("$tried" --version)"
done
