# SPDX-License-Identifier: Apache-2.0
#
# libmillrace: pipeline/ and shard/.

file(GLOB_RECURSE core_sources CONFIGURE_DEPENDS pipeline/*.c shard/*.c)
# URLs are read through libcurl, or refused.
if(MR_WITH_CURL_FOUND)
  list(FILTER core_sources EXCLUDE REGEX "/remote/no_transfer\\.c$")
else()
  list(FILTER core_sources EXCLUDE REGEX "/remote/(transfer[a-z_]*|small_request)\\.c$")
endif()
set(graph_proto ${PROJECT_SOURCE_DIR}/pipeline/graph/graph.proto)
if(EXISTS ${graph_proto})
  set(graph_pb ${PROJECT_BINARY_DIR}/pipeline/graph/graph.pb-c)
  add_custom_command(OUTPUT ${graph_pb}.c ${graph_pb}.h
    COMMAND ${PROTOC_C} --proto_path=${PROJECT_SOURCE_DIR} --c_out=${PROJECT_BINARY_DIR}
            pipeline/graph/graph.proto
    DEPENDS ${graph_proto} VERBATIM)
  set_source_files_properties(${graph_pb}.c PROPERTIES
    COMPILE_OPTIONS "-w;-include;${PROJECT_SOURCE_DIR}/pipeline/graph/libprotobuf.h")
  list(APPEND core_sources ${graph_pb}.c ${graph_pb}.h)
endif()

# Loops over whole columns: gcc vectorises them fully at -O3 only.
set_source_files_properties(pipeline/functions/library/arithmetic.c pipeline/functions/library/comparison.c
  pipeline/functions/library/logic.c pipeline/functions/library/reduction.c pipeline/functions/compiler/array_cast.c
  pipeline/functions/library/creation.c pipeline/functions/library/axis_reduction.c
  pipeline/functions/library/cumsum.c pipeline/functions/library/elementary.c
  pipeline/functions/library/image_resize.c pipeline/functions/library/image_values.c
  pipeline/functions/library/matrix_product.c pipeline/functions/library/where.c pipeline/ops/range.c PROPERTIES
  COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O3>")

if(MR_BUNDLE) # see python/bundle.py
  set_source_files_properties(pipeline/system/late_library.c PROPERTIES COMPILE_DEFINITIONS MR_BUNDLED="millrace-")
endif()

# One set of objects serves the shared and the static library.
add_library(millrace_objects OBJECT ${core_sources})
target_include_directories(millrace_objects PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_definitions(millrace_objects PRIVATE MR_BUILDING)
# Calls within the library are never replaced from outside, so they are direct and may be inlined;
# its few thread-local variables are read on every call, without calling a function.
target_compile_options(millrace_objects PRIVATE -fno-semantic-interposition -ftls-model=initial-exec)
set(core_libraries PkgConfig::JANSSON Threads::Threads m ${CMAKE_DL_LIBS})
target_link_libraries(millrace_objects PUBLIC ${core_libraries} PRIVATE ${late_libraries})

mr_add_library(millrace millrace_objects MR_CORE_HEADERS core)
target_link_libraries(millrace-shared PRIVATE ${core_libraries})
target_link_options(millrace-shared PRIVATE -Wl,-Bsymbolic-functions)
target_link_libraries(millrace-static PRIVATE ${core_libraries})
set(MR_LIBRARIES millrace)
