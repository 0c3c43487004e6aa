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
/* Why a row cannot be an element. */
enum {
    MR__ARROW_ROW_NULL = 1,
    MR__ARROW_ROW_WITHIN, /* a null within a list */
    MR__ARROW_ROW_UNEVEN, /* its lists from the third level on differ in length */
};
/* Like mr_import_arrow, for entries [from, from + n) of an array that keeper owns, with a way as
 * above. If row i cannot be an element, sets flaws[i] (n entries, initially 0) and gives the row
 * any values; if flaws is NULL, this is an error. */
mr_code mr__arrow_column(mr_array *out, const struct ArrowArray *array, int64_t from, int64_t n,
                         const struct ArrowSchema *schema, const int64_t *way, uint8_t *flaws,
                         mr_buffer *keeper, mr_status *st) MR_NODISCARD;
/* Sets flaws[i] if entry from + i, not counting the array's offset, is null; i < n. */
void mr__arrow_mark_nulls(const struct ArrowArray *array, int64_t from, int64_t n, uint8_t *flaws);
#endif
