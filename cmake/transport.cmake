# SPDX-License-Identifier: Apache-2.0
#
# libmillrace-transport: the data service's connections, messages and state machines.

pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
# transport/net/ and transport/wire/ are part of the trainer's library too.
file(GLOB net_sources CONFIGURE_DEPENDS transport/net/*.c transport/wire/*.c)
file(GLOB_RECURSE transport_sources CONFIGURE_DEPENDS transport/*.c)
list(REMOVE_ITEM transport_sources ${net_sources})
set(wire_proto ${PROJECT_SOURCE_DIR}/transport/wire/messages.proto)
set(wire_pb ${PROJECT_BINARY_DIR}/transport/wire/messages.pb-c)
add_custom_command(OUTPUT ${wire_pb}.c ${wire_pb}.h
  COMMAND ${PROTOC_C} --proto_path=${PROJECT_SOURCE_DIR} --c_out=${PROJECT_BINARY_DIR}
          transport/wire/messages.proto
  DEPENDS ${wire_proto} VERBATIM)
set_source_files_properties(${wire_pb}.c PROPERTIES COMPILE_OPTIONS -w)
set(net_libraries PkgConfig::CRYPTO PkgConfig::PROTOBUF_C PkgConfig::URING PkgConfig::ZSTD)
add_library(millrace-net_objects OBJECT ${net_sources} ${wire_pb}.c ${wire_pb}.h)
target_include_directories(millrace-net_objects PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_link_libraries(millrace-net_objects PUBLIC ${net_libraries} ${core_libraries})
add_library(millrace-transport_objects OBJECT ${transport_sources})
add_dependencies(millrace-transport_objects millrace-net_objects) # which makes messages.pb-c.h
target_include_directories(millrace-transport_objects PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_definitions(millrace-transport_objects PRIVATE MR_BUILDING)
set(transport_libraries ${net_libraries} PkgConfig::SQLITE PkgConfig::MICROHTTPD ${core_libraries})
target_link_libraries(millrace-transport_objects PUBLIC ${transport_libraries})
mr_add_library(millrace-transport millrace-transport_objects MR_TRANSPORT_HEADERS transport)
target_sources(millrace-transport-shared PRIVATE $<TARGET_OBJECTS:millrace-net_objects>)
target_sources(millrace-transport-static PRIVATE $<TARGET_OBJECTS:millrace-net_objects>)
target_link_libraries(millrace-transport-shared PUBLIC millrace-shared PRIVATE ${transport_libraries})
target_link_libraries(millrace-transport-static PUBLIC millrace-static PRIVATE ${transport_libraries})
list(APPEND MR_LIBRARIES millrace-transport)
