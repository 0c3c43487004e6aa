/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/liblz4.h"

struct mr__lz4 mr__lz4;

mr_code mr__lz4_need(mr_status *st)
{
    static mr__late_library library = MR__LATE_LIBRARY("LZ4 buffers and pages are read",
                                                       "liblz4.so.1", "liblz4-1", MR__LZ4, mr__lz4);
    return mr__late_library_need(&library, st);
}
