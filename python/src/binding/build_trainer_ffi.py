# SPDX-License-Identifier: Apache-2.0
import sys

import cffi
from build_ffi import ffi as base

ffi = cffi.FFI()
ffi.include(base)
ffi.set_source("millrace._trainer_ffi", '#include "binding.h"\n#include <millrace/millrace-trainer.h>\n')
ffi.cdef("typedef struct mr_model mr_model;")
if __name__ == "__main__":
    ffi.emit_c_code(sys.argv[1])
