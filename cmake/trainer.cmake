# SPDX-License-Identifier: Apache-2.0
#
# libmillrace-trainer, and the modules of its devices and collectives.

file(GLOB_RECURSE trainer_sources CONFIGURE_DEPENDS trainer/*.c)
list(FILTER trainer_sources EXCLUDE REGEX "/trainer/(device/cuda|collective/mpi)/") # modules of their own
# The processor's operations are loops: vectorised fully, without errno, with the bits of plain code.
file(GLOB cpu_sources CONFIGURE_DEPENDS trainer/device/cpu/*.c)
set_source_files_properties(${cpu_sources} PROPERTIES COMPILE_OPTIONS
  "$<$<NOT:$<CONFIG:Debug>>:-O3>;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
if(trainer_sources AND MR_WITH_TRAINER_FOUND)
  set(MR_HAVE_TRAINER TRUE)
  set(onnx_proto ${PROJECT_SOURCE_DIR}/trainer/model/onnx.proto)
  set(onnx_pb ${PROJECT_BINARY_DIR}/trainer/model/onnx.pb-c)
  add_custom_command(OUTPUT ${onnx_pb}.c ${onnx_pb}.h
    COMMAND ${PROTOC_C} --proto_path=${PROJECT_SOURCE_DIR} --c_out=${PROJECT_BINARY_DIR}
            trainer/model/onnx.proto
    DEPENDS ${onnx_proto} VERBATIM)
  set_source_files_properties(${onnx_pb}.c PROPERTIES COMPILE_OPTIONS -w)
  add_library(millrace-trainer_objects OBJECT ${trainer_sources} ${onnx_pb}.c ${onnx_pb}.h)
  add_dependencies(millrace-trainer_objects millrace-net_objects) # which makes messages.pb-c.h
  target_include_directories(millrace-trainer_objects PUBLIC ${PROJECT_SOURCE_DIR}
    PRIVATE ${PROJECT_BINARY_DIR})
  target_include_directories(millrace-trainer_objects SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
  target_compile_definitions(millrace-trainer_objects PRIVATE MR_BUILDING)
  # Loops over values: see above.
  set_source_files_properties(trainer/collective/ring/ring_sums.c PROPERTIES
    COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O3>")
  mr_add_library(millrace-trainer millrace-trainer_objects MR_TRAINER_HEADERS trainer)
  target_sources(millrace-trainer-shared PRIVATE $<TARGET_OBJECTS:millrace-net_objects>)
  target_sources(millrace-trainer-static PRIVATE $<TARGET_OBJECTS:millrace-net_objects>)
  target_link_libraries(millrace-trainer-shared PUBLIC millrace-shared
    PRIVATE ${DNNL_LIBRARY} ${GOMP_LIBRARY} ${net_libraries} ${core_libraries})
  target_link_libraries(millrace-trainer-static PUBLIC millrace-static
    PRIVATE ${DNNL_LIBRARY} ${GOMP_LIBRARY} ${net_libraries} ${core_libraries})
  file(RELATIVE_PATH bin_to_modules /p/${CMAKE_INSTALL_BINDIR} /p/${CMAKE_INSTALL_LIBDIR}/millrace)
  set_source_files_properties(trainer/device/device_modules.c PROPERTIES
    COMPILE_DEFINITIONS MR_BIN_TO_MODULES="${bin_to_modules}")
  if(NOT MR_FUZZERS)
    add_subdirectory(trainer/device/cuda)
    add_subdirectory(trainer/collective/mpi)
  endif()
  list(APPEND MR_LIBRARIES millrace-trainer)
endif()
