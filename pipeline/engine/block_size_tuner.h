/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_BLOCK_SIZE_TUNER_H
#define MR_PIPELINE_ENGINE_BLOCK_SIZE_TUNER_H
/* Tunes the number of rows to request at once. The first request is for one row, which shows the
 * size of a row and the time it takes. Each later request may double, as long as requests finish
 * soon and the rows fit into a block (about 256 KiB). So a few slow elements are spread over
 * threads, and blocks of large elements stay small.
 *
 * Without threads the clock is ignored, so that every run requests the same rows.
 *
 * thread   one at a time per object */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__block_size_tuner {
    size_t rows;      /* number that time allows */
    size_t row_bytes; /* in the last request; 0: not known */
    size_t widest;    /* the maximum of recent requests */
    size_t largest;   /* bytes of the largest recent request, most of which one row may occupy */
    double seconds;   /* requests that take less grow; 0: half a millisecond */
    bool by_clock;
} mr__block_size_tuner;

/* row_bytes: size of each row if the graph determines it (one request then fills a block), else 0.
 */
void mr__block_size_tuner_start(mr__block_size_tuner *t, const mr_iter *it, size_t row_bytes);
/* Rows for the next request: 1..want. */
size_t mr__block_size_tuner_ask(const mr__block_size_tuner *t, const mr_iter *it, size_t want);
/* Bytes of `rows` rows, assuming that one is as large as the largest recent one; 0: not known. */
size_t mr__block_size_tuner_expect(const mr__block_size_tuner *t, size_t rows);
/* Reports that a request for `asked` rows took `seconds` (ignored without threads) and returned
 * `rows` rows (0: ignored) of `bytes` bytes in total. */
void mr__block_size_tuner_note(mr__block_size_tuner *t, size_t asked, double seconds, size_t rows,
                               size_t bytes);
#endif
