# SPDX-License-Identifier: Apache-2.0
#
# Debian packages: cmake --preset deb && cmake --build --preset deb && cpack --preset deb

set(runtime_package libmillrace${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR Millrace)
set(CPACK_PACKAGE_CONTACT "Millrace maintainers <maintainers@millrace.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_TRANSPORT_PACKAGE_RECOMMENDS libmillrace-dev)
set(CPACK_DEBIAN_TRAINER_PACKAGE_RECOMMENDS libmillrace-dev)
configure_file(cmake/copyright.in generated/copyright COPYONLY)
# component, package, section, what it depends on beside the libraries that its files link, and a line
function(mr_package component package section depends description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  # Debian wants this under the name of each package; other installations have LICENSE once.
  install(FILES ${PROJECT_BINARY_DIR}/generated/copyright COMPONENT ${component} EXCLUDE_FROM_ALL
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package})
endfunction()
string(REPLACE ";" ", " late_packages "${late_packages}")
set(same_runtime "${runtime_package} (= ${PROJECT_VERSION})")
mr_package(runtime ${runtime_package} libs "${late_packages}" "Input pipelines and sharding: the shared library")
mr_package(dev libmillrace-dev libdevel
  "${same_runtime}, liburing-dev, libzstd-dev, libprotobuf-c-dev, libjansson-dev, libssl-dev, libsqlite3-dev, libmicrohttpd-dev"
  "Input pipelines and sharding: headers and static library")
mr_package(programs millrace science "${late_packages}" "Input pipelines for training on many devices: the program")
mr_package(transport libmillrace-transport libs "${same_runtime}"
  "The data service of input pipelines: the library and its headers")
if(MR_HAVE_TRAINER)
  mr_package(trainer libmillrace-trainer libs "${same_runtime}"
    "Mirrored training on input pipelines: the library and its headers")
endif()
include(CPack)
