# SPDX-License-Identifier: Apache-2.0
#
# mr_add_library: the shared and the static library of a layer, from one set of objects.

# name: the library; objects: its OBJECT library; headers: name of the list of its public headers
function(mr_add_library name objects headers component)
  foreach(kind SHARED STATIC)
    string(TOLOWER ${kind} suffix)
    set(target ${name}-${suffix})
    add_library(${target} ${kind} $<TARGET_OBJECTS:${objects}>)
    set(exported ${component})
    if(kind STREQUAL "STATIC")
      set(exported ${component}-static)
    endif()
    # $ORIGIN: the other libraries find the first one next to them, wherever they are installed.
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C
      EXPORT_NAME ${exported} INSTALL_RPATH "\$ORIGIN")
    target_include_directories(${target} INTERFACE
      $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>)
  endforeach()
  # Before 1.0 every minor version may change the binary interface.
  set_target_properties(${name}-shared PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_sources(${name}-shared PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}
    FILES ${${headers}})
endfunction()
