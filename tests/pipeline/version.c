/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/version.h"

#include <stdio.h>

#include "tests/harness.h"

MR_ONE_THREAD;

/* MR_VERSION is the project's version in CMakeLists.txt. */
MR_TEST(the_header_and_the_build_have_one_version)
{
    char header[64];
    snprintf(header, sizeof header, "%d.%d.%d", MR_VERSION_MAJOR, MR_VERSION_MINOR,
             MR_VERSION_PATCH);
    mr_eq_str(header, MR_VERSION);
    mr_eq_str(mr_version(), MR_VERSION);
}
