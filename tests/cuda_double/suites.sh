# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Which of the trainer's tests run on GPUs, as FOLDER/SUITE: suite trainer_FOLDER_SUITE of test_trainer_FOLDER. For
# double.sh and tests/gpu.sh.
# Suites that name no device: they take all GPUs where there are some.
suites='collective/collective collective/collective_times exchange/saved_model loop/callbacks loop/checkpoint
    loop/fit loop/fit_arrays loop/fit_epochs loop/loop_state loop/outputs loop/restart model/check_replicas
    model/graph model/input_gradient model/keras_values model/local_gradients model/logits model/masks
    model/mixed_precision model/model model/model_layers model/number_layers model/preprocessing objectives/loss
    objectives/metrics objectives/optimizer_reuse objectives/weighted_metrics servers/coordinator
    servers/server_calls strategy/staging strategy/strategies strategy/strategy'
# Those that run on devices that MR_TEST_DEVICES names.
on_named='collective/nccl device/device_streams device/math_ids device/math_images device/math_layers device/math_losses
    device/math_norms device/math_sums device/math_table'
# Those that have nothing to do with a GPU: statistics of datasets (adapt); files, and names of components (layout, onnx,
# registry, safetensors); settings of runs that do not train (run_settings); messages of processes that meet
# (rank_connection); devices of the processor and made-up ones (collective_processes, device, device_modules, timeline, of
# which there is a part in `training` of double.sh).
without='collective/collective_processes collective/rank_connection device/device device/device_modules device/timeline
    files/safetensors loop/adapt loop/run_settings model/onnx registry servers/layout'

# The commands' tests that train, and those that do so only on processors (devices, ring), by MPI, or to see what other
# programs read (readers).
scripts='collective/values collective/workers exchange/saved loop/train servers/servers'
other_scripts='collective/mpi collective/ring device/devices exchange/readers'
