# SPDX-License-Identifier: Apache-2.0
#
# Public headers. The umbrella headers, cmake/millrace*.h.in and millrace.hpp.in, are their list: what
# they include is public and installed. A new public header needs its line there, and nothing else.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include ${PROJECT_BINARY_DIR}/generated/millrace)
# <millrace/...> in the build tree: a link for the headers, the umbrella headers next to it.
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/millrace SYMBOLIC)

# Copies the umbrella header `name` into the build tree; *headers = the headers that it includes.
function(mr_read_umbrella name headers)
  configure_file(cmake/${name}.in ${PROJECT_BINARY_DIR}/generated/millrace/${name} COPYONLY)
  file(STRINGS cmake/${name}.in lines REGEX "^#include <millrace/.*/")
  list(TRANSFORM lines REPLACE "^#include <millrace/(.+)>$" "\\1")
  set(${headers} ${lines} PARENT_SCOPE)
endfunction()
mr_read_umbrella(millrace.h MR_CORE_HEADERS)
mr_read_umbrella(millrace.hpp MR_CPP_HEADERS)
list(APPEND MR_CORE_HEADERS ${MR_CPP_HEADERS})
mr_read_umbrella(millrace-transport.h MR_TRANSPORT_HEADERS)
mr_read_umbrella(millrace-trainer.h MR_TRAINER_HEADERS)

# Public headers that have moved since 0.1 can still be included by their old paths: a generated
# header at the old path includes the new one. Each line is "old path=new path".
set(MR_CORE_FORWARDS
  pipeline/formats/crc32c.h=pipeline/crc32c.h
  pipeline/formats/data_files.h=pipeline/formats/shards/data_files.h
  pipeline/formats/example.h=pipeline/formats/tfrecord/example.h
  pipeline/formats/frames.h=pipeline/formats/tfrecord/zstd_records.h
  pipeline/formats/idx.h=pipeline/formats/images/idx.h
  pipeline/formats/ledger.h=pipeline/formats/ledger/ledger.h
  pipeline/formats/record_index.h=pipeline/formats/tfrecord/record_index.h
  pipeline/formats/shard_writer.h=pipeline/formats/shards/shard_writer.h
  pipeline/formats/tfrecord.h=pipeline/formats/tfrecord/tfrecord.h
  pipeline/functions/function.h=pipeline/functions/compiler/function.h
  pipeline/functions/learned_lists.h=pipeline/functions/library/learned_lists.h
  pipeline/functions/program.h=pipeline/functions/compiler/program.h
  pipeline/columns/element_example.h=pipeline/streams/elements/element_example.h
  pipeline/columns/element_npy.h=pipeline/streams/elements/element_npy.h
  shard/auto_shard.h=shard/passes/auto_shard.h
  shard/cluster.h=shard/cluster/cluster.h
  shard/distribute.h=shard/distribute/distribute.h
  shard/input_context.h=shard/distribute/input_context.h
  shard/stream_cut.h=shard/streams/stream_cut.h
  shard/stream_splits.h=shard/streams/stream_splits.h)
set(MR_TRANSPORT_FORWARDS)
set(MR_TRAINER_FORWARDS
  trainer/activations.h=trainer/device/activations.h
  trainer/adapt.h=trainer/loop/adapt.h
  trainer/callback.h=trainer/loop/callback.h
  trainer/callback_desc.h=trainer/loop/callback_desc.h
  trainer/checkpoint.h=trainer/loop/checkpoint.h
  trainer/collective.h=trainer/collective/collective.h
  trainer/coordinator.h=trainer/servers/coordinator.h
  trainer/device.h=trainer/device/device.h
  trainer/device_modules.h=trainer/device/device_modules.h
  trainer/fit.h=trainer/loop/fit.h
  trainer/fit_arrays.h=trainer/loop/fit_arrays.h
  trainer/history.h=trainer/loop/history.h
  trainer/initializer.h=trainer/strategy/initializer.h
  trainer/layer.h=trainer/model/layer.h
  trainer/loss.h=trainer/objectives/loss.h
  trainer/loss_desc.h=trainer/objectives/loss_desc.h
  trainer/math.h=trainer/device/math.h
  trainer/metric.h=trainer/objectives/metric.h
  trainer/metric_desc.h=trainer/objectives/metric_desc.h
  trainer/model.h=trainer/model/model.h
  trainer/onnx.h=trainer/model/onnx.h
  trainer/optimizer.h=trainer/objectives/optimizer.h
  trainer/optimizer_desc.h=trainer/objectives/optimizer_desc.h
  trainer/parameter_server.h=trainer/servers/parameter_server.h
  trainer/safetensors.h=trainer/files/safetensors.h
  trainer/saved_model.h=trainer/exchange/saved_model.h
  trainer/strategy.h=trainer/strategy/strategy.h
  trainer/timeline.h=trainer/device/timeline.h
  trainer/variable.h=trainer/strategy/variable.h)

# Writes the forwarding headers of a library into the build tree, below generated/millrace, and
# installs them with the install component `component`.
function(mr_forward_headers component)
  foreach(pair IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.+)$" pair ${pair})
    set(old ${CMAKE_MATCH_1})
    set(new ${CMAKE_MATCH_2})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/millrace/${old} @ONLY CONTENT
      "/* SPDX-License-Identifier: Apache-2.0 */\n/* Moved to <millrace/${new}>. */\n#include <millrace/${new}>\n")
    get_filename_component(folder ${old} DIRECTORY)
    install(FILES ${PROJECT_BINARY_DIR}/generated/millrace/${old}
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/${folder} COMPONENT ${component})
  endforeach()
endfunction()
