/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/version.h"

const char *mr_version(void)
{
    return MR_VERSION;
}
