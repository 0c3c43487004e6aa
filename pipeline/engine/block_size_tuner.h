/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_BLOCK_SIZE_TUNER_H
#define MR_PIPELINE_ENGINE_BLOCK_SIZE_TUNER_H
/* How many rows to ask for at once. The first request is for one row, which tells how large a row
 * is and how long it takes; each later one may double, as long as a request ends soon and its rows
 * fit into a block (about 256 KiB). Few slow elements are so spread over threads, and large ones
 * stay few.
 *
 * Without threads the clock is not looked at: the same rows are asked for in every run.
 *
 * thread   one at a time per object */
#include "pipeline/engine/op_iterator.h"

typedef struct mr__block_size_tuner {
    size_t rows;      /* as many as time allows */
    size_t row_bytes; /* as seen last; 0: not known */
    size_t widest;    /* the most that was seen of late */
    size_t largest;   /* bytes of the largest request of late: of its rows one may be most of it */
    bool by_clock;
} mr__block_size_tuner;

/* row_bytes: of each row where the graph says so (one request then fills a block), else 0. */
void mr__block_size_tuner_start(mr__block_size_tuner *t, const mr_iter *it, size_t row_bytes);
/* Rows for the next request: 1..want. */
size_t mr__block_size_tuner_ask(const mr__block_size_tuner *t, const mr_iter *it, size_t want);
/* Bytes of so many rows, of which one is as large as the largest of late; 0: not known. */
size_t mr__block_size_tuner_expect(const mr__block_size_tuner *t, size_t rows);
/* A request for `asked` rows took `seconds` (ignored without threads) and gave `rows` rows (0:
 * nothing to learn from) of `bytes` in all. */
void mr__block_size_tuner_note(mr__block_size_tuner *t, size_t asked, double seconds, size_t rows,
                               size_t bytes);
#endif
