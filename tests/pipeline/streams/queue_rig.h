/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_QUEUE_RIG_H
#define MR_TESTS_QUEUE_RIG_H
/* A read-ahead queue over a graph, driven by hand. */
#include "pipeline/functions/compiler/function.h"
#include "pipeline/ops/apply.h"
#include "pipeline/streams/read_ahead_queue.h"

typedef struct rig {
    mr_iterator *iterator;
    mr_iter *it;
    mr__queue q;
} rig;

/* Opens the queue over `input` (taken over), with positions. */
mr_code rig_open_dataset(rig *r, mr_dataset *input, int threads, int64_t block_rows, mr_status *st);
void rig_open(rig *r, const char *text, int threads, int64_t block_rows);
/* The same with a fill. */
void rig_open_ahead(rig *r, const char *text, int threads, mr__ahead ahead);
void rig_close(rig *r);

/* Up to `events` more events of the queue as text: numbers, ! for an error. Starts the fill after
 * each pull. Valid until the next call. */
const char *rig_run(rig *r, size_t events, size_t want);
void rig_save(rig *r, size_t taken, mr_state_w *w);
mr_code rig_restore(rig *r, const mr_state_w *w, mr_status *st);
/* The part of a list of events after its first n. */
const char *rig_after(const char *list, size_t n);

/* A function of elements, ctx an int *left: its argument; at the value 2 an error of memory,
 * *left times. */
mr_code rig_short_of_memory(void *ctx, const mr_block *in, mr_block *out, mr_status *st);
void rig_pause(int ms);
#endif
