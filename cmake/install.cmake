# SPDX-License-Identifier: Apache-2.0
#
# Installation: libraries, headers, programs, documentation, the CMake package, pkg-config.

# Install components are the Debian packages: runtime, dev (core), transport and trainer (all of
# theirs), programs (with the documentation).
# find_package(millrace COMPONENTS core transport trainer) gives millrace::core, millrace::transport
# and millrace::trainer (shared); millrace::core-static and so on too where the development files of
# what they link are there.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
# runtime, dev: the install components of the shared library and of all else
function(mr_install_library name component runtime dev)
  foreach(kind shared static)
    # The kind comes first: each exported file includes all files whose names begin as its own does.
    set(export ${kind}-${component})
    install(TARGETS ${name}-${kind} EXPORT ${export}
      LIBRARY COMPONENT ${runtime} NAMELINK_COMPONENT ${dev}
      ARCHIVE COMPONENT ${dev}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace COMPONENT ${dev}
      INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(EXPORT ${export} NAMESPACE millrace:: DESTINATION ${package_dir} COMPONENT ${dev})
  endforeach()
  install(FILES ${PROJECT_BINARY_DIR}/generated/millrace/${name}.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace COMPONENT ${dev})
endfunction()

# requires: pkg-config packages of ours; private_libs: what a static link adds
function(mr_install_pkg_config name dev requires requires_private libs_private description)
  configure_file(cmake/millrace.pc.in generated/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/generated/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${dev})
endfunction()

mr_forward_headers(dev ${MR_CORE_FORWARDS})
mr_forward_headers(transport ${MR_TRANSPORT_FORWARDS})
if(MR_HAVE_TRAINER)
  mr_forward_headers(trainer ${MR_TRAINER_FORWARDS})
endif()
file(RELATIVE_PATH pc_to_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
mr_install_library(millrace core runtime dev)
install(FILES ${PROJECT_BINARY_DIR}/generated/millrace/millrace.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace COMPONENT dev)
mr_install_pkg_config(millrace dev "" "jansson"
  "-lm -pthread" "input pipelines and sharding")
mr_install_library(millrace-transport transport transport transport)
mr_install_pkg_config(millrace-transport transport millrace "libcrypto libprotobuf-c liburing libzstd sqlite3 libmicrohttpd" "-lm -pthread"
  "the data service")
if(MR_HAVE_TRAINER)
  mr_install_library(millrace-trainer trainer trainer trainer)
  mr_install_pkg_config(millrace-trainer trainer millrace "libcrypto libprotobuf-c liburing libzstd" "-ldnnl -lgomp -lm -pthread"
    "mirrored training")
endif()
install(TARGETS ${MR_PROGRAMS} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
if(man_pages)
  install(DIRECTORY ${man_pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
endif()
set(MR_ZSH_COMPLETION_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING
  "Where zsh looks for completions")
install(FILES cli/completion/millrace.bash RENAME millrace COMPONENT programs
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES cli/completion/_millrace DESTINATION ${MR_ZSH_COMPLETION_DIR} COMPONENT programs)
install(FILES cli/completion/millrace.fish COMPONENT programs
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)

configure_file(cmake/millrace-config.cmake.in generated/millrace-config.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/millrace-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/millrace-config.cmake
  ${PROJECT_BINARY_DIR}/generated/millrace-config-version.cmake DESTINATION ${package_dir} COMPONENT dev)
