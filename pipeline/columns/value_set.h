/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_VALUE_SET_H
#define MR_PIPELINE_COLUMNS_VALUE_SET_H
/* A set of tensors of one type, to detect repeated values.
 *
 *     bytes   [key][key][key] ...   in the order they were added
 *     at      offset of each key
 *
 * A key is the bytes of the value if all keys have one width (scalars other than strings). Else it
 * is the key's size (8 bytes), the rank, the shape, and the values; each string is preceded by its
 * size (8 bytes).
 * Zeroed memory is an empty set of keys of any size. */
#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/hash_index.h"

typedef struct mr__value_set {
    size_t width; /* of every key; 0: widths differ. Set by the owner */
    unsigned char *bytes;
    size_t n_bytes, bytes_capacity;
    size_t *at;
    size_t n, capacity;
    mr__hash_index index;
    unsigned char *key; /* of the current value */
    size_t key_capacity;
} mr__value_set;

/* Adds row `row` of a; *fresh: it was not in the set. */
mr_code mr__value_set_add(mr__value_set *s, const mr_array *a, size_t row, bool *fresh,
                          mr_status *st) MR_NODISCARD;
/* The present state of the set, for mr__value_set_back. */
static inline size_t mr__value_set_mark(const mr__value_set *s)
{
    return s->n_bytes;
}
/* Removes the values that were added since `mark`. */
void mr__value_set_back(mr__value_set *s, size_t mark);
void mr__value_set_reset(mr__value_set *s);

/* Save and restore the keys, as bytes. */
mr_code mr__value_set_save(const mr__value_set *s, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__value_set_restore(mr__value_set *s, mr_state_r *r, mr_status *st) MR_NODISCARD;
#endif
