/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ARROW_IMPORT_H
#define MR_PIPELINE_MEMORY_ARROW_IMPORT_H
/* Imports several arrays that one parent owns. Private to pipeline/. */
#include "pipeline/memory/import.h"

/* The type of a column row that corresponds to one entry of an Arrow type. */
typedef struct mr__arrow_type {
    mr_dtype dtype;
    int rank;
    bool ragged;                /* axis 1 is ragged within a row */
    bool varies;                /* rows differ in axis 0: RAGGED */
    int64_t shape[MR_MAX_RANK]; /* -1: varies */
} mr__arrow_type;
/* A struct (its fields are columns); a list, or a map, which is a list of structs of two fields. */
bool mr__arrow_is_struct(const struct ArrowSchema *s);
bool mr__arrow_is_list_of(const struct ArrowSchema *s);
/* way selects a field by number in each struct on the path to the values, which may be within lists
 * and maps; NULL: the path has no structs.
 * errors   MR_INVALID_ARGUMENT: columns do not support the type; names the field */
mr_code mr__arrow_type_of(const struct ArrowSchema *schema, const int64_t *way, mr__arrow_type *out,
                          mr_status *st) MR_NODISCARD;

/* Moves *array into a new buffer *keeper that releases it when freed. */
mr_code mr__arrow_keep(struct ArrowArray *array, mr_buffer **keeper, mr_status *st) MR_NODISCARD;
/* Like mr_import_arrow, for entries [from, from + n) of an array that keeper owns, with a way as
 * above. If lists of row i from the third level on differ in length, sets uneven[i] (n entries,
 * initially false) and makes the row empty; if uneven is NULL, this is an error. */
mr_code mr__arrow_column(mr_array *out, const struct ArrowArray *array, int64_t from, int64_t n,
                         const struct ArrowSchema *schema, const int64_t *way, bool *uneven,
                         mr_buffer *keeper, mr_status *st) MR_NODISCARD;
/* Fails if one of entries [from, from + n), not counting the array's offset, is null. */
mr_code mr__arrow_no_nulls(const struct ArrowArray *array, int64_t from, int64_t n,
                           const struct ArrowSchema *schema, mr_status *st) MR_NODISCARD;
#endif
