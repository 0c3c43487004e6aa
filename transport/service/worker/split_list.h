/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_SPLIT_LIST_H
#define MR_TRANSPORT_SERVICE_WORKER_SPLIT_LIST_H
/* The splits assigned to one stream so far, and its graph, whose sources read from them.
 *
 *     feed op --take--> | list | --ask--> (asks the dispatcher)
 *              waits    |      | <--add, end, stop--
 *
 * The list only grows, in the order in which splits are assigned: those of one repetition of the
 * sources before those of the next, and within a repetition by their numbers.
 *
 * thread   any; ask is called with the list locked */
#include "pipeline/graph/rewrite.h"

typedef struct mr__split_list mr__split_list;

/* The stream needs split number `index` of its list, for this repetition of its sources: `add` or
 * `end` must follow. */
typedef void (*mr__split_ask)(void *ctx, uint64_t index, uint64_t repetition);

/* *out = a list of v[0..n), of a job that has `total` splits per repetition. */
mr_code mr__split_list_new(mr__split_list **out, const uint64_t *v, size_t n, uint64_t total,
                           mr__split_ask ask, void *ctx, mr_status *st) MR_NODISCARD;
void mr__split_list_free(mr__split_list *l); /* no iterator of its graph may be open */
/* Adds the split that was requested; ignores any other. If memory runs out, it is requested
 * again. */
void mr__split_list_add(mr__split_list *l, uint64_t index, uint64_t split);
/* This repetition has no more. */
void mr__split_list_end(mr__split_list *l, uint64_t repetition);
/* Ends all waits with MR_CANCELLED, now and later. */
void mr__split_list_stop(mr__split_list *l);
/* *out = the graph ds of a stream, with its sources fed from l, which every iterator borrows.
 * errors   as mr_feed_splits */
mr_code mr__split_list_feed(mr__split_list *l, mr_dataset *ds, mr_dataset **out,
                            mr_status *st) MR_NODISCARD;
#endif
