/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_OBJECT_STREAM_H
#define MR_PIPELINE_REMOTE_OBJECT_STREAM_H
/* Reads a remote object sequentially, several ranges of up to 8 MiB in flight.
 *
 *     range 0 | range 1 | range 2 | ...       in flight, returned in order, slot by slot
 *
 * The number of ranges grows while that makes a consumer that waits faster: up to 16, as far as
 * all streams of the process have less than 256 MiB in flight, less under a memory limit. A
 * server without ranges sends one stream, which pauses until the consumer catches up.
 *
 * thread   one at a time per stream */
#include "pipeline/remote/transfer.h"

typedef struct mr__object_stream mr__object_stream;

/* Opens the object for reading from byte `start` on. An object that was listed is opened without a
 * request, so that the first read may say that it cannot be read. ahead: read ahead. The cancel
 * object is borrowed until close; or NULL.
 * errors   those of mr__object_open and of mr__transfer_take */
mr_code mr__object_stream_open(mr__object_stream **out, const char *url, int64_t start, bool ahead,
                               mr_cancel *cancel, mr_status *st) MR_NODISCARD;
void mr__object_stream_close(mr__object_stream *s);          /* NULL: no-op */
int64_t mr__object_stream_size(const mr__object_stream *s);  /* -1: unknown */
uint64_t mr__object_stream_mark(const mr__object_stream *s); /* mr__object_mark */
/* Continues at byte `offset`. A server without ranges sends the object again from its start. */
void mr__object_stream_seek(mr__object_stream *s, int64_t offset);
/* Reads up to n of the next bytes into `data`, if they are in the cache and that saves a copy.
 * Returns how many; 0: the next call is mr__object_stream_next. */
size_t mr__object_stream_read(mr__object_stream *s, void *data, size_t n);
/* Returns the next bytes in a buffer (owned), *got of them at *data, which MR__REMOTE_HEADROOM
 * writable bytes precede. MR_END at the end of the object.
 * errors   those of mr__transfer_take, with URL and offset; the next call tries again */
mr_code mr__object_stream_next(mr__object_stream *s, mr_buffer **slot, uint8_t **data, size_t *got,
                               mr_status *st) MR_NODISCARD;
#endif
