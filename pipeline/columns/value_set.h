/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_VALUE_SET_H
#define MR_PIPELINE_COLUMNS_VALUE_SET_H
/* A set of tensors of one type: which values were seen.
 *
 *     bytes   [key][key][key] ...   in the order they were added
 *     at      where each begins
 *
 * A key is the value's bytes where all have one width (scalars but strings), else its size (8
 * bytes) and then its rank, its shape, and its values, strings with their sizes before them (8
 * bytes each).
 * Zeroed memory is an empty set of keys of any size. */
#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/hash_index.h"

typedef struct mr__value_set {
    size_t width; /* of every key; 0: they differ. Set by the owner */
    unsigned char *bytes;
    size_t n_bytes, bytes_capacity;
    size_t *at;
    size_t n, capacity;
    mr__hash_index index;
    unsigned char *key; /* of the value at hand */
    size_t key_capacity;
} mr__value_set;

/* Adds row `row` of a; *fresh: it was not there. */
mr_code mr__value_set_add(mr__value_set *s, const mr_array *a, size_t row, bool *fresh,
                          mr_status *st) MR_NODISCARD;
/* What tells the set as it is now from what it will be: for mr__value_set_back. */
static inline size_t mr__value_set_mark(const mr__value_set *s)
{
    return s->n_bytes;
}
/* Takes away what was added since `mark`. */
void mr__value_set_back(mr__value_set *s, size_t mark);
void mr__value_set_reset(mr__value_set *s);

/* The keys, as bytes. */
mr_code mr__value_set_save(const mr__value_set *s, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__value_set_restore(mr__value_set *s, mr_state_r *r, mr_status *st) MR_NODISCARD;
#endif
