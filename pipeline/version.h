/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_VERSION_H
#define MR_PIPELINE_VERSION_H
/* The version of the headers, and the version of the library in use.
 *
 * thread   any
 * since    0.1 */
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 2
#define MR_VERSION_PATCH 0

/* The version of the library, for example "0.2.0". It may differ from that of the headers. */
MR_API const char *mr_version(void);

#ifdef __cplusplus
}
#endif
#endif
