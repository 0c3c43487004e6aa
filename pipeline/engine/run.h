/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_RUN_H
#define MR_PIPELINE_ENGINE_RUN_H
/* Inside of the engine: what the iterators of one mr_iterator share, and what the engine keeps for
 * each. Private to engine/.
 *
 *     mr_iterator -- run
 *        root mr_iter -- inputs mr_iter ...       one per node, and per inner dataset
 *
 * thread   `lock` guards what is grouped under it; the rest is set before the first next */
#include <pthread.h>
#include <stdatomic.h>
#include "pipeline/engine/iter.h"
#include "pipeline/engine/statistics.h"
#include "pipeline/graph/node.h"

typedef struct mr_epoch_count {
    uint64_t source, opened;
} mr_epoch_count;

struct mr_run {
    mr_iterator_opts opts;
    bool deterministic;
    atomic_bool cancelled;
    mr_stats stats;
    pthread_mutex_t lock; /* guards the executor's making and the epoch counts */
    mr_executor *executor;
    bool own_executor;
    mr_epoch_count *epochs;
    size_t n_epochs, epochs_capacity;
};

struct mr_iter_private {
    mr_iter *parent;
    size_t place; /* which input of the parent; SIZE_MAX: a dataset that is a value */
    uint64_t epoch;
    mr_op_counters *counters; /* NULL: counted under the op that opened it */
    atomic_bool no_replay;    /* set by mr_iter_set_no_replay */
    bool ended;
    bool deferred;   /* `error` is due */
    bool pending;    /* rows and errors not yet delivered */
    size_t at;       /* rows of `rows` delivered */
    size_t error_at; /* errors of `errors` delivered */
    mr_block rows;
    mr_row_errors errors;
    mr_status error;
};

/* Opens an iterator of node (a reference is taken). parent NULL: the root. */
mr_code mr__iter_open(mr_run *run, mr_iter *parent, size_t place, mr_dataset *node, uint64_t source,
                      mr_iter **out, mr_status *st) MR_NODISCARD;
/* Writes the op path of it. */
void mr__iter_path(const mr_iter *it, char *buf, size_t size);
/* Shared states of node and all below it that have one. */
mr_code mr__node_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__node_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st) MR_NODISCARD;

struct mr_state_w {
    unsigned char *data;
    size_t size, capacity;
};
struct mr_state_r {
    const unsigned char *at, *end;
};
void mr__state_w_reset(mr_state_w *w);
#endif
