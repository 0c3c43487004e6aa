/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_UPLOAD_H
#define MR_PIPELINE_REMOTE_UPLOAD_H
/* Writes objects of S3 stores, which become visible as a whole.
 *
 *     put .... finish ............. commit
 *     parts    all parts are there  the object is there
 *
 * An object that is smaller than a part stays in memory until commit sends it in one request.
 * Larger ones are multipart uploads: parts are sent while more is put, several at once. From part
 * 1,250 on parts are twice as large, and so on, so that 10,000 parts are enough for 5 TiB. Requests
 * are repeated if their answers are lost; before a commit is repeated, the store is asked for a
 * mark that was sent with the object. An upload that is not committed is aborted; that of a process
 * that was killed remains, invisible, until mr_upload_abort (uploads.h) removes it.
 *
 * source   Amazon S3 API Reference (2006-03-01): CreateMultipartUpload, UploadPart,
 *          CompleteMultipartUpload, AbortMultipartUpload, PutObject; conditional writes
 * thread   one at a time per group */
#include "pipeline/remote/transfer.h"

#define MR__UPLOAD_PART       ((size_t)16 << 20)
#define MR__UPLOAD_LEAST_PART ((size_t)5 << 20) /* that stores accept, but for the last part */

typedef struct mr__upload mr__upload;
/* Uploads that share a memory limit. */
typedef struct mr__upload_group mr__upload_group;

/* most: bytes of parts that are being sent, at least one part is. NULL: no memory. */
mr__upload_group *mr__upload_group_new(size_t part, size_t most);
/* After all its uploads. NULL: nothing. */
void mr__upload_group_free(mr__upload_group *g);

typedef struct mr__upload_opts {
    mr__upload_group *group; /* NULL: its own */
    mr_cancel *cancel;       /* ends waits; borrowed; NULL: that of the thread, at each call */
    bool creates;            /* refuses to replace an object */
    bool rewinds;            /* the first part is sent last, see mr__upload_rewind */
} mr__upload_opts;

/* opts NULL: all zero.
 * errors   MR_UNIMPLEMENTED: not a store that is written to, or a build without libcurl;
 *          MR_PERMISSION_DENIED: a graph of a service's client */
mr_code mr__upload_open(mr__upload **out, const char *url, const mr__upload_opts *opts,
                        mr_status *st) MR_NODISCARD;
/* Appends. errors: those of transfers, with the URL; then only abort may follow */
mr_code mr__upload_put(mr__upload *u, const void *data, size_t n, mr_status *st) MR_NODISCARD;
/* The next bytes overwrite the beginning of the object, within its first part. */
void mr__upload_rewind(mr__upload *u);
/* Sends what is left and waits for all parts. */
mr_code mr__upload_finish(mr__upload *u, mr_status *st) MR_NODISCARD;
/* Makes the object visible, after finish.
 * errors   MR_ALREADY_EXISTS: another writer made one, and `creates` is set */
mr_code mr__upload_commit(mr__upload *u, mr_status *st) MR_NODISCARD;
/* Aborts it unless it was committed, and releases it. NULL: nothing. */
void mr__upload_close(mr__upload *u);

/* Removes an object; it need not exist. */
mr_code mr__object_delete(const char *url, mr_status *st) MR_NODISCARD;
/* Aborts a multipart upload; it need not exist. */
mr_code mr__upload_abort_id(const char *url, const char *id, int tries, mr_status *st) MR_NODISCARD;
#endif
