# SPDX-License-Identifier: Apache-2.0
#
# Examples and benchmarks: one file, one program, against the public headers alone.

function(mr_add_programs folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  if(NOT MR_WITH_MPI_FOUND)
    list(FILTER sources EXCLUDE REGEX "_mpi\\.c$")
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    file(STRINGS ${source} trainer_includes REGEX "^#include <millrace(-trainer\\.h|/trainer/|/millrace-trainer\\.h)")
    if(trainer_includes AND NOT MR_HAVE_TRAINER)
      continue()
    endif()
    string(REPLACE "/" "-" target "${folder}-${name}")
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    file(STRINGS ${source} service_includes REGEX "^#include <millrace/(transport/|millrace-transport\\.h)")
    if(trainer_includes)
      target_link_libraries(${target} PRIVATE millrace-trainer-static)
    elseif(service_includes)
      target_link_libraries(${target} PRIVATE millrace-transport-static)
    else()
      target_link_libraries(${target} PRIVATE millrace-static)
    endif()
    if(folder STREQUAL "bench")
      # Ceilings are as fast as the compiler can make them.
      target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)
      target_link_libraries(${target} PRIVATE ${core_libraries} ${late_libraries})
    endif()
  endforeach()
endfunction()
if(MR_BUILD_EXAMPLES)
  mr_add_programs(examples)
  mr_add_programs(examples/guides)
  if(MR_WITH_CUDA_FOUND AND NOT MR_SANITIZE) # whose host code is nvcc's
    set(kernel ${PROJECT_BINARY_DIR}/examples/custom_kernel_cuda)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    add_custom_command(OUTPUT ${kernel}.o
      COMMAND ${NVCC} -std=c++17 -O2 -gencode arch=compute_80,code=[sm_80,compute_80]
              -I${PROJECT_BINARY_DIR}/include -I${PROJECT_BINARY_DIR}/generated
              -c -o ${kernel}.o ${PROJECT_SOURCE_DIR}/examples/custom_kernel.cu
      DEPENDS examples/custom_kernel.cu VERBATIM COMMENT "Compiling examples/custom_kernel.cu")
    find_library(CUDART_STATIC cudart_static HINTS ${NVCC}/../../lib64 ${NVCC}/../../targets/x86_64-linux/lib
      /usr/local/cuda/lib64)
    if(CUDART_STATIC)
      add_executable(examples-custom_kernel_cuda ${kernel}.o)
      set_target_properties(examples-custom_kernel_cuda PROPERTIES LINKER_LANGUAGE C
        OUTPUT_NAME custom_kernel_cuda RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
      target_link_libraries(examples-custom_kernel_cuda PRIVATE millrace-trainer-static
        ${CUDART_STATIC} stdc++ rt ${CMAKE_DL_LIBS})
    endif()
  endif()
endif()
if(MR_BUILD_BENCH)
  mr_add_programs(bench)
  target_link_libraries(bench-tls_bare PRIVATE ssl crypto)
  # Benchmarks of parts that have no public header are programs of tests/.
  foreach(name scale allreduce allreduce_mpi)
    if((name STREQUAL "allreduce_mpi" AND NOT MR_WITH_MPI_FOUND) OR
       (NOT name STREQUAL "scale" AND NOT MR_HAVE_TRAINER))
      continue()
    endif()
    add_executable(bench-${name} tests/bench/${name}.c)
    set_target_properties(bench-${name} PROPERTIES OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    target_include_directories(bench-${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    target_compile_options(bench-${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)
    if(name STREQUAL "scale")
      target_link_libraries(bench-${name} PRIVATE millrace-transport-static ${transport_libraries})
      add_dependencies(bench-${name} millrace-transport_objects) # which makes messages.pb-c.h
    else()
      target_link_libraries(bench-${name} PRIVATE millrace-trainer-static ${core_libraries} ${late_libraries})
    endif()
  endforeach()
  if(TARGET bench-allreduce_mpi)
    target_include_directories(bench-allreduce_mpi SYSTEM PRIVATE ${MPI_INCLUDE_DIRS})
    target_compile_definitions(bench-allreduce_mpi PRIVATE MR_MPI_MODULE="$<TARGET_FILE:millrace-mpi>")
    add_dependencies(bench-allreduce_mpi millrace-mpi)
    target_link_libraries(bench-allreduce_mpi PRIVATE $<TARGET_PROPERTY:millrace-mpi,LINK_LIBRARIES>)
  endif()
  if(TARGET bench-train) # runs oneDNN's primitives alone
    target_include_directories(bench-train SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
    target_compile_options(bench-train PRIVATE -fno-math-errno)
  endif()
endif()
