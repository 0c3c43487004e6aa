# SPDX-License-Identifier: Apache-2.0
#
# The programs, and their manual pages.

# `millrace` links the first library alone, so that it starts in milliseconds: mapping and relocating
# oneDNN would cost it more than most graphs take. `millrace train` therefore executes millrace-train,
# which lies beside it and has the trainer linked in. Opening the trainer's shared library at run
# time was the alternative; it would need the program's libmillrace to be shared too, or bring a
# second copy of it with its own registries into the process.
# In the same way the data service's library is linked into millrace-service alone: it has the same
# commands and more, and millrace executes it for a command or a graph that it does not know.
#   cli/millrace.c, cli/cmd_*.c   in millrace and millrace-service
#   cli/plain_*.c                 in millrace             cli/service_*.c   in millrace-service
#   cli/train_*.c                 in millrace-train       other files of cli/   in all
file(GLOB cli_sources CONFIGURE_DEPENDS cli/*.c)
set(cli_train ${cli_sources})
list(FILTER cli_train INCLUDE REGEX "/train_[^/]*$")
set(cli_main ${cli_sources})
list(FILTER cli_main INCLUDE REGEX "/(millrace|cmd_[^/]*)\\.c$")
set(cli_plain ${cli_sources})
list(FILTER cli_plain INCLUDE REGEX "/plain_[^/]*$")
set(cli_service ${cli_sources})
list(FILTER cli_service INCLUDE REGEX "/service_[^/]*$")
set(cli_all ${cli_sources})
list(REMOVE_ITEM cli_all ${cli_main} ${cli_plain} ${cli_service} ${cli_train})
set(MR_PROGRAMS)
if(cli_main)
  add_executable(millrace ${cli_main} ${cli_plain} ${cli_all})
  target_link_libraries(millrace PRIVATE millrace-static)
  add_executable(millrace-service ${cli_main} ${cli_service} ${cli_all})
  target_link_libraries(millrace-service PRIVATE millrace-transport-static)
  list(APPEND MR_PROGRAMS millrace millrace-service)
  if(MR_HAVE_TRAINER AND cli_train)
    add_executable(millrace-train ${cli_train} ${cli_all})
    target_link_libraries(millrace-train PRIVATE millrace-trainer-static millrace-transport-static)
    list(APPEND MR_PROGRAMS millrace-train)
  endif()
  set_target_properties(${MR_PROGRAMS} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    ENABLE_EXPORTS ON)
  # What --load opens calls the public functions of the program itself: all of them are linked in.
  foreach(program IN LISTS MR_PROGRAMS)
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:millrace_objects>)
  endforeach()
endif()

# ---- manual pages: what the program says of itself
if(MR_PROGRAMS AND NOT MR_SANITIZE AND NOT MR_FUZZERS)
  set(man_pages ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${man_pages}/millrace.1.gz
    COMMAND ${PROJECT_SOURCE_DIR}/cli/man_pages.sh ${man_pages} ${CMAKE_CROSSCOMPILING_EMULATOR}
            $<TARGET_FILE:millrace>
    DEPENDS ${MR_PROGRAMS} cli/man_pages.sh VERBATIM)
  add_custom_target(man_pages ALL DEPENDS ${man_pages}/millrace.1.gz)
endif()
