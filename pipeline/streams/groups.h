/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_GROUPS_H
#define MR_PIPELINE_STREAMS_GROUPS_H
/* Sorts elements into groups by a key. A full group becomes a dataset whose elements are emitted
 * before another input element is read: group_by_window and bucket_by_sequence_length.
 *
 *     input --key--> 3: [row row     ]      store of rows; a group has the numbers of its slots
 *                    7: [row row row ] full --> dataset --make--> inner iterator --> next
 *                    ...
 *
 * At the end of the input the remaining groups follow in ascending order of keys. No more rows are
 * pulled than some group needs to be full.
 *
 * thread   as an op's next */
#include "pipeline/columns/row_store.h"
#include "pipeline/memory/hash_index.h"
#include "pipeline/streams/cursor.h"

/* Callbacks of an op for keys and groups. */
typedef struct mr__grouper {
    /* *key = the key for the number that the function returned. NULL: the number itself. */
    mr_code (*key)(mr_iter *it, int64_t number, int64_t *key, mr_status *st);
    /* *size = rows of a full group; called when the key first occurs. Below 1: an error. */
    mr_code (*size)(mr_iter *it, int64_t key, int64_t *size, mr_status *st);
    /* *out = the dataset made of a group's rows, checked. */
    mr_code (*make)(mr_iter *it, int64_t key, const mr_block *rows, mr_dataset **out,
                    mr_status *st);
} mr__grouper;

typedef struct mr__group mr__group;

typedef struct mr__groups {
    mr_iter *it;
    const mr__grouper *ops;
    const mr_program *program; /* computes the number of an element */
    mr__cursor input;
    mr_block numbers; /* of the cursor's rows, except those that failed */
    mr_row_errors errors;
    size_t looked; /* rows that `numbers` and `errors` cover; 0: not computed yet */
    size_t failed; /* errors consumed */
    mr__row_store store;
    mr__group *groups; /* in order of first occurrence; by key once the input has ended */
    size_t n, capacity;
    mr__hash_index index; /* of groups, by key */
    size_t bound;         /* minimum number of rows before a group can be full; 0: unknown */
    int64_t least_size;   /* lower bound of all group sizes */
    size_t due;           /* group to make a dataset of, plus 1; 0: no group */
    bool ended;           /* the input has ended */
    size_t passed;        /* then: number of groups known to be empty */
    uint32_t *slots, *to; /* for a run of rows: where they are stored, and their groups */
    size_t slots_capacity, to_capacity;
    mr_iter *inner; /* of the current group; NULL: no current group */
    mr_block rows;  /* of that group */
    int64_t key;
} mr__groups;

/* number: the function that returns an element's number. least_size: lower bound of group sizes. */
mr_code mr__groups_open(mr__groups *g, mr_iter *it, const mr__grouper *ops, mr_fn *number,
                        int64_t least_size, mr_status *st) MR_NODISCARD;
/* Slots of an op whose state begins with an mr__groups. */
void mr__groups_close(mr_iter *it);
mr_code mr__groups_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__groups_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__groups_restore(mr_iter *it, mr_state_r *r, mr_status *st);
int64_t mr__groups_cardinality(const mr_dataset *self, const void *p, const int64_t *in);

/* For a descriptor, in addition to iter_size, infer, open and close. */
#define MR__GROUPS_SLOTS                                                                           \
    .state_doc = "the elements held", .count_doc = "unknown; without end where the input is",      \
    .min_inputs = 1, .max_inputs = 1, .role = MR_ROLE_BARRIER, .props = MR_OP_KEEPS_SHARDS,        \
    .cardinality = mr__groups_cardinality, .next = mr__groups_next, .save = mr__groups_save,       \
    .restore = mr__groups_restore

/* For an infer slot: checks that fn returns one scalar int64 for elements `in`; `what` is its name.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__groups_check_number(const mr_dataset *self, const char *what, mr_fn *fn,
                                const mr_spec *in, mr_status *st) MR_NODISCARD;
#endif
