/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_REMOTE_H
#define MR_PIPELINE_FILES_REMOTE_H
/* Remote names like hdfs://host/file, which cannot be opened, and URLs without their second slash.
 * Private to pipeline/.
 *
 * thread   any */

/* A hint that ends the error message for a remote path; "" if path is not remote. */
const char *mr__remote_hint(const char *path);
#endif
