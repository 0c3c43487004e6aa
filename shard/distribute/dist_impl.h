/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_DIST_IMPL_H
#define MR_SHARD_DISTRIBUTE_DIST_IMPL_H
/* Internals of distributed datasets and iterators. Private to shard/. */
#include "shard/distribute/distribute.h"
#include "shard/distribute/elastic_impl.h"

struct mr_dist_dataset {
    int64_t workers, worker, local, replicas;
    bool has_policy, has_seed, owns_slots;
    bool seed_given; /* by the user */
    mr_shard_policy asked, policy;
    uint64_t seed;        /* with has_seed: for random ops without a seed */
    mr_dataset *original; /* NULL: an input function */
    mr_input_fn fn;
    void *ctx;
    char *text; /* ctx of text functions; owned */
    size_t text_size;
    mr_dataset **graphs; /* `local` of them */
    mr_spec *spec;
    int64_t absorbed;
    mr__elastic elastic; /* streams 0: the job is not elastic */
    mr_explanation explanation;
};

/* *out = the graph that worker `worker` runs. policy, absorbed and e may be NULL. */
mr_code mr__dist_graph(const mr_dist_dataset *dd, int64_t worker, mr_dataset **out,
                       mr_shard_policy *policy, int64_t *absorbed, mr_explanation *e,
                       mr_status *st) MR_NODISCARD;
/* The options of a worker's pipeline. */
mr_iterator_opts mr__dist_run_opts(const mr_dist_dataset *dd, const mr_iterator_opts *run);

/* b = one row, a zero-size batch: see docs/sharding.md. spec is a replica's.
 * errors   MR_UNIMPLEMENTED: a component is a dataset */
mr_code mr__zero_size_batch(const mr_spec *spec, mr_block *b, mr_status *st) MR_NODISCARD;

/* The pipelines of workers in other processes, run to find out how many steps they take. */
typedef struct mr__peer {
    mr_iterator *it; /* NULL: not open (yet, or any more), or counted */
    int64_t worker;
    int64_t elements; /* taken in this pass */
    bool counted;     /* its pipeline reads many files, and has `total` elements: it need not run */
    int64_t total;
    bool ended;
} mr__peer;
typedef struct mr__peers {
    const mr_dist_dataset *dd;
    const mr_iterator_opts *run;
    mr__peer *v;
    size_t n; /* 0: not open */
} mr__peers;
/* *any = true if a peer has data in this step; passes: the number of earlier passes. Opens the
 * peers at the first call. errors MR_RESOURCE_EXHAUSTED, MR_CANCELLED; an error of a peer only ends
 * that peer */
mr_code mr__peers_have_data(mr__peers *p, int64_t passes, int64_t step, bool *any,
                            mr_status *st) MR_NODISCARD;
/* Starts the next pass of those that are open. */
mr_code mr__peers_rewind(mr__peers *p, mr_status *st) MR_NODISCARD;
/* Closes all; they can be opened again. */
void mr__peers_close(mr__peers *p);
#endif
