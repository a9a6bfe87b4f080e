#!/usr/bin/env bash
# All that a machine with a GPU and many cores can tell of this checkout, in 8 minutes, without a
# network: builds the extension, runs the tests of batches on the GPU, training under NCCL and a
# compiled step among them, measures copies and the curve over threads, and looks for bad accesses.
#
#     bench/on_gpu.sh [FOLDER]     writes FOLDER/RESULTS_<machine>.md; by default to bench/results
#     bench/on_gpu.sh --dry-run    the same on small data with the installed package, on any machine
#
# It needs a compiler, cmake, ninja, pybind11, pyarrow, torch, numpy, pytest and hypothesis.
# Each step has a limit of its own; one that fails or is ended is told, and the next one begins.
set -uo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

step() { # NAME SECONDS COMMAND...: runs it, shows its end, and keeps that for the page
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  printf '\n=== %s\n' "$name"
  timeout -k 10 "$limit" "$@" > "$work/log" 2>&1
  local code=$?
  tail -n 15 "$work/log"
  local came=$([ $code = 0 ] && echo passed || echo "**failed** ($code)")
  printf '| %s | %s | %d s | %s |\n' "$name" "$came" $((SECONDS - begin)) \
    "$(tail -n 1 "$work/log" | tr -d '|=' | cut -c 1-120)" >> "$work/steps"
  [ $code = 0 ] || failed=1
}

if [ "${1:-}" = --dry-run ]; then
  results=$work
  quick=(--quick)
else
  results=${1:-bench/results}
  quick=(--repeats 3)
  build() {
    cmake -G Ninja -S . -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
      -DPython_EXECUTABLE="$($python -c 'import sys; print(sys.executable)')" \
      -Dpybind11_DIR="$($python -m pybind11 --cmakedir)" -DTORCHPARQUET_BINDINGS=ON \
      -DTORCHPARQUET_TESTS=OFF -DTORCHPARQUET_EDITABLE=ON &&
      cmake --build "$work/build" --target _core bridges || return 1
    cp -r python "$work/site"
    find "$work/build" -name '*.so' -exec cp -t "$work/site/torchparquet/_impl" {} +
    # The version, which an installation would have.
    mkdir -p "$work/site/torchparquet-0.dist-info"
    printf 'Metadata-Version: 2.1\nName: torchparquet\nVersion: 0+%s\n' \
      "$(git rev-parse --short HEAD 2> /dev/null || echo source)" \
      > "$work/site/torchparquet-0.dist-info/METADATA"
  }
  export work python
  export -f build
  step "the build from source" 120 bash -c build
  export PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH}
fi

name=$($python -c '
import torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
print(name.replace("NVIDIA ", "").replace(" ", "_"))')

step "tests of batches, training and a compiled step" 100 \
  "$python" -m pytest -q -rs -p no:cacheprovider tests/batches
if command -v compute-sanitizer > /dev/null; then
  step "one test under compute-sanitizer" 60 compute-sanitizer --error-exitcode 1 \
    "$python" -m pytest -q -p no:cacheprovider tests/batches/test_training.py -k ddp
else
  printf '| one test under compute-sanitizer | not found | | |\n' >> "$work/steps"
fi
for row in device curve; do
  step "python -m bench --only $row" 100 "$python" -m bench "${quick[@]}" --only "$row" \
    --data-dir "$work/data" --results "$work/$row.md"
done

page=$results/RESULTS_$name.md
{
  cat "$work/device.md" "$work/curve.md" 2> /dev/null || printf '# Results\n'
  printf '\n## Steps of bench/on_gpu.sh\n\nGPU: %s.\n\n| step | | took | last line |\n|---|---|---|---|\n' "$name"
  cat "$work/steps"
} > "$page"
printf '\n'
cat "$page"
exit $failed
