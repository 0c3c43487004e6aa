# SPDX-License-Identifier: Apache-2.0
#
# The Python package (python/): where an interpreter of 3.11 or later has cffi, numpy and its
# headers. Debian: python3-dev, python3-cffi, python3-numpy.

# The first of these interpreters that can build it; `python3` may be one without these packages.
set(MR_PYTHON "" CACHE STRING "The Python interpreter that python/ is built for; empty: one that can")
set(python_check "import sys, sysconfig, os.path
import cffi
assert sys.version_info >= (3, 11), 'Python 3.11 or later'
folder = sysconfig.get_path('include')
assert os.path.exists(os.path.join(folder, 'Python.h')), 'Python.h'
print(folder)")
if(NOT SKBUILD) # pip installs numpy with the package, not to build it
  string(APPEND python_check "\nimport numpy")
endif()
set(python_found FALSE)
if(NOT MR_WITH_PYTHON STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING AND NOT MR_FUZZERS AND NOT MR_SANITIZE MATCHES thread)
  foreach(candidate IN ITEMS "${MR_PYTHON}" "${Python_EXECUTABLE}" "${Python3_EXECUTABLE}" python3 /usr/bin/python3)
    if(NOT candidate)
      continue()
    endif()
    execute_process(COMMAND ${candidate} -c "${python_check}" RESULT_VARIABLE status
      OUTPUT_VARIABLE output ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0)
      set(python_found TRUE)
      set(MR_PYTHON ${candidate})
      set(MR_PYTHON_INCLUDE ${output})
      break()
    endif()
  endforeach()
endif()
mr_feature(MR_WITH_PYTHON ${python_found} "Python 3.11 or later with its headers, cffi and numpy, hence without the Python package")
if(MR_WITH_PYTHON_FOUND)
  add_subdirectory(python)
endif()
