/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_GROUPS_H
#define MR_PIPELINE_STREAMS_GROUPS_H
/* Elements sorted into groups by a key; a group that is full becomes a dataset, whose elements come
 * out before another element is read: group_by_window and bucket_by_sequence_length.
 *
 *     input --key--> 3: [row row     ]      store of rows; a group has the numbers of its slots
 *                    7: [row row row ] full --> dataset --make--> inner iterator --> next
 *                    ...
 *
 * At the end of the input the groups that are left follow in ascending order of keys. Of the input
 * no more is pulled than some group needs to be full.
 *
 * thread   as an op's next */
#include "pipeline/columns/row_store.h"
#include "pipeline/memory/hash_index.h"
#include "pipeline/streams/cursor.h"

/* What an op does with keys and groups. */
typedef struct mr__grouper {
    /* *key of the number that the function gave. NULL: the number itself. */
    mr_code (*key)(mr_iter *it, int64_t number, int64_t *key, mr_status *st);
    /* *size = rows of a full group, asked for when the key is met first; below 1: an error. */
    mr_code (*size)(mr_iter *it, int64_t key, int64_t *size, mr_status *st);
    /* *out = the dataset made of a group's rows, checked. */
    mr_code (*make)(mr_iter *it, int64_t key, const mr_block *rows, mr_dataset **out,
                    mr_status *st);
} mr__grouper;

typedef struct mr__group mr__group;

typedef struct mr__groups {
    mr_iter *it;
    const mr__grouper *ops;
    const mr_program *program; /* gives the number of an element */
    mr__cursor input;
    mr_block numbers; /* of the cursor's rows, but for those that failed */
    mr_row_errors errors;
    size_t looked; /* rows that `numbers` and `errors` are of; 0: of none yet */
    size_t failed; /* errors met */
    mr__row_store store;
    mr__group *groups; /* as they were met; in ascending order once the input has ended */
    size_t n, capacity;
    mr__hash_index index; /* of groups, by key */
    size_t bound;         /* so many rows at least before a group is full; 0: not known */
    int64_t least_size;   /* of any group */
    size_t due;           /* group that is to be made a dataset, plus 1; 0: none */
    bool ended;           /* the input */
    size_t passed;        /* then: groups known to be empty */
    uint32_t *slots, *to; /* of a run of rows: where they are stored, and their groups */
    size_t slots_capacity, to_capacity;
    mr_iter *inner; /* of the group at hand; NULL: there is none */
    mr_block rows;  /* of that group */
    int64_t key;
} mr__groups;

/* number: the function that gives the number of an element. least_size: no group is smaller. */
mr_code mr__groups_open(mr__groups *g, mr_iter *it, const mr__grouper *ops, mr_fn *number,
                        int64_t least_size, mr_status *st) MR_NODISCARD;
/* Slots of an op whose state begins with an mr__groups. */
void mr__groups_close(mr_iter *it);
mr_code mr__groups_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__groups_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__groups_restore(mr_iter *it, mr_state_r *r, mr_status *st);
int64_t mr__groups_cardinality(const mr_dataset *self, const void *p, const int64_t *in);

/* In a descriptor, beside iter_size, infer, open and close. */
#define MR__GROUPS_SLOTS                                                                           \
    .state_doc = "the elements held", .count_doc = "unknown; without end where the input is",      \
    .min_inputs = 1, .max_inputs = 1, .role = MR_ROLE_BARRIER, .props = MR_OP_KEEPS_SHARDS,        \
    .cardinality = mr__groups_cardinality, .next = mr__groups_next, .save = mr__groups_save,       \
    .restore = mr__groups_restore

/* Of an infer slot: fn must return one scalar int64 of elements `in`; `what` names it.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__groups_check_number(const mr_dataset *self, const char *what, mr_fn *fn,
                                const mr_spec *in, mr_status *st) MR_NODISCARD;
#endif
