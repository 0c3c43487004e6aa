# SPDX-License-Identifier: Apache-2.0
#
# Public headers that have moved since 0.1 can still be included by their old paths: a generated
# header at the old path includes the new one. Each line is "old path=new path".
set(MR_CORE_FORWARDS)
set(MR_TRANSPORT_FORWARDS)
set(MR_TRAINER_FORWARDS)

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
