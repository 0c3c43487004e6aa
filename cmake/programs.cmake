# SPDX-License-Identifier: Apache-2.0
#
# The programs, and their manual pages.

# `millrace` links the first library alone, so that it starts in milliseconds: mapping and relocating
# oneDNN would cost it more than most graphs take. `millrace train` therefore executes millrace-train,
# which is in the same folder and has the trainer linked in. Opening the trainer's shared library at run
# time was the alternative; it would need the program's libmillrace to be shared too, or bring a
# second copy of it with its own registries into the process.
# In the same way the data service's library is linked into millrace-service alone: it has the same
# commands and more, and millrace executes it for a command or a graph that it does not know.
#   cli/commands/           in millrace and millrace-service     cli/service/   in millrace-service
#   cli/plain_program.c     in millrace                          cli/train/     in millrace-train
#   other files of cli/     in all
file(GLOB cli_shared CONFIGURE_DEPENDS cli/*.c)
list(REMOVE_ITEM cli_shared ${PROJECT_SOURCE_DIR}/cli/plain_program.c)
file(GLOB cli_commands CONFIGURE_DEPENDS cli/commands/*.c)
file(GLOB cli_service CONFIGURE_DEPENDS cli/service/*.c)
file(GLOB cli_train CONFIGURE_DEPENDS cli/train/*.c)
add_executable(millrace cli/plain_program.c ${cli_commands} ${cli_shared})
target_link_libraries(millrace PRIVATE millrace-static)
add_executable(millrace-service ${cli_commands} ${cli_service} ${cli_shared})
target_link_libraries(millrace-service PRIVATE millrace-transport-static)
set(MR_PROGRAMS millrace millrace-service)
if(MR_HAVE_TRAINER)
  add_executable(millrace-train ${cli_train} ${cli_shared})
  target_link_libraries(millrace-train PRIVATE millrace-trainer-static millrace-transport-static)
  list(APPEND MR_PROGRAMS millrace-train)
endif()
set_target_properties(${MR_PROGRAMS} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  ENABLE_EXPORTS ON)
# What --load opens calls the public functions of the program itself: all of them are linked in.
foreach(program IN LISTS MR_PROGRAMS)
  target_sources(${program} PRIVATE $<TARGET_OBJECTS:millrace_objects>)
endforeach()

# ---- manual pages: what the program says of itself
if(NOT MR_SANITIZE AND NOT MR_FUZZERS)
  set(man_pages ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${man_pages}/millrace.1.gz
    COMMAND ${PROJECT_SOURCE_DIR}/cli/man_pages.sh ${man_pages} ${CMAKE_CROSSCOMPILING_EMULATOR}
            $<TARGET_FILE:millrace>
    DEPENDS ${MR_PROGRAMS} cli/man_pages.sh VERBATIM)
  add_custom_target(man_pages ALL DEPENDS ${man_pages}/millrace.1.gz)
endif()
