/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_RUN_H
#define MR_PIPELINE_ENGINE_RUN_H
/* Internals of the engine: the state shared by the iterators of one mr_iterator, and the engine's
 * state for each of them. Private to engine/.
 *
 *     mr_iterator -- run
 *        root mr_iter -- inputs mr_iter ...       one per node, and per inner dataset
 *
 * thread   `lock` guards the fields grouped under it; the rest is set before the first next */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/statistics.h"
#include "pipeline/fnv.h"
#include "pipeline/formats/ledger/ledger_names.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/splitmix.h"
#include "pipeline/system/name_scope.h"

/* A function whose begin was called. */
typedef struct mr__begun {
    mr_fn *fn;
    void *ctx, *run;
    void (*end)(void *ctx, void *run);
} mr__begun;

typedef struct mr__epoch_count {
    uint64_t number, opened;
} mr__epoch_count;

/* The unit in which sources are numbered, from the left: the graph, or one dataset that is a value.
 */
typedef struct mr__scope {
    bool inner;              /* the scope of a dataset that is a value */
    uint64_t salt;           /* inner: the sources' numbers are hashed with it */
    mr_identity outer;       /* inner: of the element, if `adopted` */
    bool adopted;            /* a file read here is file outer.ordinal of outer.source */
    bool replaced;           /* the sources stand for outer's and use its source and epoch */
    mr__epoch_count *counts; /* in the order of numbers; guarded by the run's lock */
    size_t n, capacity;
} mr__scope;

struct mr_run {
    mr_dataset *graph; /* the user's dataset */
    mr_iterator_opts opts;
    mr__iterator_internal internal; /* opts.internal points to it */
    mr__name_scope names;
    char *cache; /* names.cache, if the graph has its own */
    bool deterministic;
    bool by_name;      /* the position being restored is of another mixture */
    unsigned forks;    /* mr__forks() of the process that it belongs to */
    mr_cancel *cancel; /* the iterator's own; opts.cancel triggers it too */
    mr__stats stats;
    mr__memory memory;
    pthread_mutex_t lock; /* guards the creation of the executor, the counts of scopes, `waiting`
                             and `begun` */
    mr__begun *begun;
    size_t n_begun, begun_capacity;
    mr_executor *executor;
    bool own_executor;
    mr__scope scope;  /* of the graph */
    mr_iter *waiting; /* those whose files only the end of their input completes, a list */
};

/* Calls the `end` of all functions that have begun. No op may be running. */
void mr__run_end_functions(mr_run *run);

/* Where the names of the files that a source reads come from. */
typedef enum mr__names {
    MR__NAMES_AS_ABOVE,  /* of a place: as those of its parent */
    MR__NAMES_GIVEN,     /* the graph contains them */
    MR__NAMES_OF_VALUES, /* the dataset is a value: they are elements, unless its text has them */
    MR__NAMES_REPLACED,  /* the dataset stands for a source whose names are given */
} mr__names;

struct mr_iter_private {
    mr_iter *parent;
    size_t place;     /* which input of the parent; SIZE_MAX: a dataset that is a value */
    mr__scope *scope; /* NULL: identities are not requested */
    bool owns_scope;
    bool again;             /* an op above opens inputs while running */
    bool records;           /* set by mr_iter_set_records */
    atomic_int recording;   /* how many iterators do, among this one and those below it */
    bool running;           /* it is open */
    bool stands_for_source; /* set by mr_iter_set_stands_for_source */
    mr__names names;        /* of the files that sources read */
    uint64_t number;        /* of the first source of this iterator, in the scope */
    uint64_t epoch;         /* of a source */
    uint64_t in_graph;      /* its place there (origin_internal.h) */
    bool has_seed;          /* of the job: not that of the run, but: */
    uint64_t seed;
    size_t takes;                        /* number of inner datasets that it interleaves; 0: one */
    struct mr__inputs_read *inputs_read; /* records what is read below; NULL: nothing does */
    size_t in_turn;            /* number of datasets interleaved with the one that contains this */
    size_t most_rows;          /* maximum requested of a next; 0: any number */
    uint64_t delivered;        /* elements so far, including its own failed ones */
    uint64_t n_elements;       /* with counted: their number */
    uint64_t dropped;          /* failed elements that the op dropped */
    mr__op_counters *counters; /* NULL: the allocation failed */
    bool owns_counters;        /* see mr__stats_of */
    atomic_bool no_replay;     /* set by mr_iter_set_no_replay */
    atomic_bool may_block;     /* it or one below it does: set by mr_iter_set_may_block */
    _Atomic(const char *) no_position; /* with no_positions: the message */
    atomic_size_t no_positions;        /* open ones below that set it (mr__iter_set_no_position) */
    bool elsewhere;                    /* tasks pull it, not the thread that pulls the op above */
    mr_iter *next_waiting;             /* in run->waiting */
    bool waits, settled;               /* it is in run->waiting; it was pulled for its end */
    bool ended;
    bool goes_on;              /* mr__iter_set_goes_on */
    bool counted;              /* for access by number */
    bool in_scope;             /* its opening is counted there */
    void (*undo)(mr_iter *it); /* mr__iter_set_undo */
    bool inner;                /* of a dataset that is a value */
    bool guarded;    /* the op above holds elements of unknown size, and memory is limited */
    bool deferred;   /* `error` is to be returned next */
    bool failed;     /* `error`, of no element, is returned from now on */
    bool pending;    /* rows and errors not yet delivered */
    size_t at;       /* rows of `rows` delivered */
    size_t error_at; /* errors of `errors` delivered */
    mr_block rows;
    mr_row_errors errors;
    mr_status error;
};

/* Where an iterator is opened. */
typedef struct mr__place {
    mr_iter *parent; /* NULL: the root */
    size_t input;    /* of the parent; SIZE_MAX: a dataset that is a value */
    uint64_t in_graph;
    mr__scope *scope; /* NULL: no scope */
    bool owns_scope;  /* the scope is freed with the iterator, also if opening it fails */
    uint64_t number;  /* of the first source */
    mr__names names;
} mr__place;
/* Opens an iterator of node (a reference is taken). */
mr_code mr__iter_open(mr_run *run, const mr__place *place, mr_dataset *node, mr_iter **out,
                      mr_status *st) MR_NODISCARD;

/* mr_iter_count_input and mr_iter_at_input for an iterator itself. */
mr_code mr__iter_count(mr_iter *it, uint64_t *n, mr_status *st) MR_NODISCARD;
mr_code mr__iter_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *b,
                    mr_status *st) MR_NODISCARD;
/* What its op returns next, rows and errors that it left to the engine included. */
mr_code mr__iter_next_rows(mr_iter *it, size_t want, mr_block *b, mr_status *st) MR_NODISCARD;

/* The number of the first source of input i. */
uint64_t mr__iter_first_source(const mr_iter *it, size_t i);
/* true between two ops that open inputs while running: rows read ahead and discarded there must not
 * count as opened. So nothing is read ahead, and rows are read one at a time. */
bool mr__iter_counts_exactly(const struct mr_iter_private *p, const mr_dataset *node);
/* Discards the rows and errors that are not delivered yet. */
void mr__iter_drop_pending(struct mr_iter_private *p);

/* ---- scopes ---- */

/* The `source` of identities: its number, or inside a function a hash. */
uint64_t mr__scope_source(const mr__scope *s, uint64_t number);
/* The scope of a dataset that parent made from an element with the identities `outer`. */
void mr__scope_start(mr__scope *s, const mr_iter *parent, const mr_identities *outer);
void mr__scope_free(mr__scope *s); /* NULL: nothing */
/* Takes back an opening that was counted. */
void mr__scope_unopened(mr_run *run, mr__scope *s, uint64_t number);
/* *epoch = how often the source was opened before in its scope; counts this opening. */
mr_code mr__scope_opened(mr_run *run, mr__scope *s, uint64_t number, uint64_t *epoch,
                         mr_status *st) MR_NODISCARD;
mr_code mr__scope_set(mr_run *run, mr__scope *s, uint64_t number, uint64_t opened,
                      mr_status *st) MR_NODISCARD;
/* Save and restore how often each of the sources [first, first + n) was opened. s NULL: saves
 * nothing, and skips saved counts. */
mr_code mr__scope_save(mr_run *run, const mr__scope *s, uint64_t first, uint64_t n, mr_state_w *w,
                       mr_status *st) MR_NODISCARD;
mr_code mr__scope_restore(mr_run *run, mr__scope *s, uint64_t first, uint64_t n, mr_state_r *r,
                          mr_status *st) MR_NODISCARD;
void mr__scope_reset(mr__scope *s);

/* Makes `it` deliver `rows` (emptied), the rows that it delivered last, again. Call right after a
 * restore. */
mr_code mr__iter_put_back(mr_iter *it, mr_block *rows, mr_status *st) MR_NODISCARD;

struct mr_state_w {
    unsigned char *data;
    size_t size, capacity;
    /* Of the run; NULL: none. The files that it names of the rows in the position are collected for
     * mr__state_put_names. */
    mr_ledger *ledger;
    mr__ledger_names names;
    uint64_t source, file; /* looked up last */
    bool looked_up;
};
struct mr_state_r {
    const unsigned char *at, *end;
    bool is_of_0_1;
    const mr_dataset *graph; /* that the state is of; NULL: none. Datasets in the state may reach
                                what it does */
    bool trusted;            /* they may reach everything */
};
void mr__state_w_reset(mr_state_w *w);
/* Ends a state with the names of the files that its rows are from: a restored run may never open
 * them again. Writes nothing if no name is known. */
mr_code mr__state_put_names(mr_state_w *w, mr_status *st) MR_NODISCARD;
/* Reads them and puts them into the ledger (NULL: drops them). */
mr_code mr__state_get_names(mr_state_r *r, mr_ledger *ledger, mr_status *st) MR_NODISCARD;

#endif
