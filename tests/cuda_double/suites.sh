# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# What runs on GPUs of the trainer's tests; for double.sh and tests/gpu.sh.
# Suites that name no device: they take all GPUs where there are some.
suites='callbacks check_replicas checkpoint collective collective_times coordinator fit fit_arrays fit_epochs graph
    input_gradient keras_values loss metrics mixed_precision model model_layers number_layers outputs preprocessing
    saved_model server_calls staging strategies strategy'
# Those that run on devices that MR_TEST_DEVICES names.
on_named='device_streams math_ids math_images math_layers math_losses math_norms math_sums math_table nccl'
# Those that have nothing to do with a GPU: statistics of datasets (adapt); files, and names of components (layout, onnx,
# registry, safetensors); devices of the processor and made-up ones (collective_processes, device, device_modules,
# timeline, of which there is a part in `training` of double.sh).
without='adapt collective_processes device device_modules layout onnx registry safetensors timeline'

# The programs of the trainer's tests are named after their folders.
# suite_in BIN SUITE: prints the program in BIN/tests and the filter for its tests of that name, which differs between
# Criterion (a glob) and the tests' own runner (a part of a name)
suite_in() {
    local program name tests
    for program in "$1"/tests/test_trainer*; do
        name=${program##*/test_}_$2 tests=$("$program" --list)
        case $tests in
        *"$name::"*) echo "$program" --filter="$name::" ;;
        *"$name: "*) echo "$program" --filter="$name/*" ;;
        esac
    done
}

# script_in TESTS NAME: the path of a script of the trainer's tests
script_in() { find "$1/trainer" -name "$2.sh"; }

# The commands' tests that train, and those that do so only on processors (devices, ring), by MPI, or to see what other
# programs read (readers).
scripts='saved servers train values workers'
other_scripts='devices mpi readers ring'
