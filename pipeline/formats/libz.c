/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/libz.h"

struct mr__zlib mr__zlib;

mr_code mr__zlib_need(mr_status *st)
{
    static mr__late_library library =
        MR__LATE_LIBRARY("GZIP and ZLIB streams and positions are read and written", "libz.so.1",
                         "zlib1g", MR__ZLIB, mr__zlib);
    return mr__late_library_need(&library, st);
}
