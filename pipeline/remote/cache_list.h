/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CACHE_LIST_H
#define MR_PIPELINE_REMOTE_CACHE_LIST_H
/* What patterns matched, and what is known of single objects, kept in a cache for reading offline.
 *
 *     "MRLIST01"   CRC-32C of the rest   endpoint, pattern   4 texts for each object ...
 *
 * The texts are URL, ETag, Last-Modified, and "SIZE RANGES". Each text ends with a NUL.
 *
 * thread   any */
#include "pipeline/remote/cache_piece.h"

typedef struct mr__list_note {
    char *v; /* owned */
    size_t n, room;
    bool failed; /* it is not written */
} mr__list_note;

void mr__list_note_add(mr__list_note *l, const char *url, const mr__object_info *info);
/* Writes it, unless the same is there, and frees it. What fails is only not there offline. */
void mr__list_note_end(mr__list_note *l, mr__cache *c, const char *pattern);

typedef mr_code (*mr__list_fn)(void *ctx, const char *url, const mr__object_info *info,
                               mr_status *st);
/* Calls fn for all that was noted.
 * errors   those of fn; MR_FAILED_PRECONDITION: nothing was noted */
mr_code mr__list_recall(mr__cache *c, const char *pattern, mr__list_fn fn, void *ctx,
                        mr_status *st) MR_NODISCARD;
#endif
