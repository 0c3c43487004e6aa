/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/libssl.h"

mr__libssl mr__ssl;
static mr__late_library library =
    MR__LATE_LIBRARY("connections are encrypted", "libssl.so.3", "libssl3", MR__LIBSSL, mr__ssl);

mr_code mr__libssl_need(mr_status *st)
{
    return mr__late_library_need(&library, st);
}
