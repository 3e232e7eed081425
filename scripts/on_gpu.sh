#!/usr/bin/env bash
# Measures this machine's GPU in under eight minutes: calibrates it, checks the commands that use it, times 40 models.
#
#     scripts/on_gpu.sh [--seconds 420] [--out DIR] [--wheels DIR] [--cpu] [--only-steps]
#
# Needs Python with torch >= 2.6 for the GPU (CUDA or ROCm); $PYTHON names it (default: python3). Everything else is
# installed into .venv-gpu in the project's folder ($VENV names another one): from the index, or with --wheels from a
# folder, for a machine without network. To fill the folder, elsewhere, with the same version of Python:
#
#     pip wheel --wheel-dir DIR '.[nvidia]' && rm -f DIR/torch-* DIR/nvidia_c* DIR/triton-*
#
# What is written, and what the exit code means: see scripts/on_gpu.py.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
venv=${VENV:-$root/.venv-gpu}
seconds=420
wheels=
passed=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift 2 ;;
        --wheels) wheels=$2; shift 2 ;;
        *) passed+=("$1"); shift ;;
    esac
done

if [ ! -e "$venv/installed" ]; then
    "$python" -m venv --system-site-packages "$venv"
    # A virtual environment made from another one sees the packages of the base alone.
    "$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' \
        > "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
    # Until Python 3.11 it brings an old setuptools, which hides the one that torch needs.
    "$venv/bin/python" -m pip uninstall --quiet --yes setuptools
    # The version of the package, which need not be that of the module: 2.11.0 and 2.11.0+cu130.
    if ! torch=$("$venv/bin/python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))'); then
        echo "error: $python has no torch: install one for this GPU" >&2
        exit 2
    fi
    pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    # The torch that is here is required too, so that pip never brings another one.
    if [ -n "$wheels" ]; then
        pip+=(--no-index --find-links "$wheels")
        "${pip[@]}" device-advisor "$torch"
    else
        "${pip[@]}" "$root" "$torch"
    fi
    "${pip[@]}" nvidia-ml-py || echo "without nvidia-ml-py: no clocks, power and memory of the process" >&2
    touch "$venv/installed"
fi

export PYTHONPATH=$root # the scripts and the package are of this folder; the environment holds what they need
exec "$venv/bin/python" "$root/scripts/on_gpu.py" --seconds "$((seconds - SECONDS))" ${passed[@]+"${passed[@]}"}
