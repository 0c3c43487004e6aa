/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_SPLIT_LIST_H
#define MR_TRANSPORT_SERVICE_SPLIT_LIST_H
/* The splits of one stream, as far as they were handed out, and its graph in which each source is
 * fed from them.
 *
 *     feed op --take--> | list | --ask--> whoever asks the dispatcher
 *              waits    |      | <--add, end, stop--
 *
 * The list only grows, in the order in which its splits were handed out: those of a repetition of
 * the sources before those of the next one, and in a repetition by their numbers.
 *
 * thread   any; ask is called with the list locked */
#include "pipeline/graph/rewrite.h"

typedef struct mr__split_list mr__split_list;

/* The stream wants split number `index` of its list, for this repetition of its sources: `add` or
 * `end` is to follow. */
typedef void (*mr__split_ask)(void *ctx, uint64_t index, uint64_t repetition);

/* *out = a list of v[0..n), of a job that has `total` splits a repetition. */
mr_code mr__split_list_new(mr__split_list **out, const uint64_t *v, size_t n, uint64_t total,
                           mr__split_ask ask, void *ctx, mr_status *st) MR_NODISCARD;
void mr__split_list_free(mr__split_list *l); /* no iterator of its graph is open */
/* The split that was asked for; one that was not is left out. Without memory it is asked for
 * again. */
void mr__split_list_add(mr__split_list *l, uint64_t index, uint64_t split);
/* This repetition has no more. */
void mr__split_list_end(mr__split_list *l, uint64_t repetition);
/* Ends all waits with MR_CANCELLED, now and later. */
void mr__split_list_stop(mr__split_list *l);
/* *out = the graph ds of a stream, its sources fed from l, which is borrowed by every iterator.
 * errors   as mr_feed_splits */
mr_code mr__split_list_feed(mr__split_list *l, mr_dataset *ds, mr_dataset **out,
                            mr_status *st) MR_NODISCARD;
#endif
