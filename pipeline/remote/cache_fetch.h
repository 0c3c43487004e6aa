/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CACHE_FETCH_H
#define MR_PIPELINE_REMOTE_CACHE_FETCH_H
/* Reads bytes of remote objects through the cache, or by a transfer.
 *
 *     reader        start .... take: piece in the cache? -> checksum, bytes
 *                              else waits for
 *     threads       claim the piece (or wait for the process that has it), transfer, write, commit
 *
 * Threads fetch pieces, up to 16 at once, however readers proceed: so no process waits for the
 * consumer of another one. A process that has the claim of a piece and writes nothing for 30 s
 * loses it. If the cache cannot be written to, or has no room, a reader continues with a transfer.
 *
 * Objects with a strong ETag and a size are cached, if their server sends ranges or they are a
 * single piece; others are read by transfers. Small parts of an object that is larger than the
 * whole cache are too.
 *
 * The directory is that of the graph (with_options), else MILLRACE_CACHE_DIR; MILLRACE_CACHE_LIMIT
 * is stored in it; MILLRACE_OFFLINE=1 starts no transfer.
 *
 * thread   one at a time per fetch */
#include "pipeline/remote/cache_piece.h"
#include "pipeline/remote/transfer.h"

typedef struct mr__fetch mr__fetch;

/* As their namesakes of transfer.h.
 * errors   also those of mr__cache_open; MR_FAILED_PRECONDITION: offline, and not in the cache;
 *          MR_DATA_LOSS: offline, and damaged */
mr_code mr__fetch_start(mr__fetch **out, mr__object *o, int64_t from, int64_t to, bool bare,
                        mr_status *st) MR_NODISCARD;
void mr__fetch_drop(mr__fetch *f);
mr_code mr__fetch_wait_known(mr__fetch *f, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
bool mr__fetch_has_next(mr__fetch *f);
mr_code mr__fetch_take(mr__fetch *f, mr_cancel *cancel, mr_buffer **slot, uint8_t **data,
                       size_t *got, mr_status *st) MR_NODISCARD;
/* Reads up to n of the next bytes into `data`, if whole blocks of them are in an open piece: which
 * saves a copy. Returns how many; 0: take them. */
size_t mr__fetch_read(mr__fetch *f, void *data, size_t n);

/* The cache that this thread's graph uses; NULL: none. Borrowed, for the life of the process.
 * errors   those of mr__cache_open; MR_INVALID_ARGUMENT: a variable of the environment */
mr_code mr__cache_current(mr__cache **out, mr_status *st) MR_NODISCARD;
bool mr__cache_is_offline(void);
/* MR_OK if requests may be made.
 * errors   MR_FAILED_PRECONDITION: offline */
mr_code mr__cache_check_online(const char *url, mr_status *st) MR_NODISCARD;
/* MR_OK if there is a cache, or requests may be made.
 * errors   MR_FAILED_PRECONDITION */
mr_code mr__cache_need(const mr__cache *c, const char *url, mr_status *st) MR_NODISCARD;
/* Of an object that is not known: offline it becomes known, as it was noted; else nothing is done.
 * errors   those of mr__list_recall; MR_NOT_FOUND: it was not there */
mr_code mr__cache_recall_object(mr__object *o, mr_status *st) MR_NODISCARD;
/* Notes what is known of the object; or, if it is not known, that it is not there. */
void mr__cache_note_object(const mr__object *o);
#endif
