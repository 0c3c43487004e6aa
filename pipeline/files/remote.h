/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_REMOTE_H
#define MR_PIPELINE_FILES_REMOTE_H
/* Names like s3://bucket/file: no file of this machine. Private to pipeline/.
 *
 * thread   any */

/* What to do instead of opening path, as the end of a message; "" if path names no other
 * machine. */
const char *mr__remote_hint(const char *path);
#endif
