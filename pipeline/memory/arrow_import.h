/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ARROW_IMPORT_H
#define MR_PIPELINE_MEMORY_ARROW_IMPORT_H
/* Importing several arrays that one parent owns. Private to pipeline/. */
#include "pipeline/memory/import.h"

/* What an entry of an Arrow type is as a row of a column. */
typedef struct mr__arrow_type {
    mr_dtype dtype;
    int rank;
    bool ragged;                /* axis 1 has inner lengths of its own */
    bool varies;                /* axis 0 is not the same for all rows: RAGGED */
    int64_t shape[MR_MAX_RANK]; /* -1: differs */
} mr__arrow_type;
/* A struct, whose fields are columns; a list, or a map, which is a list of structs of two. */
bool mr__arrow_is_struct(const struct ArrowSchema *s);
bool mr__arrow_is_list_of(const struct ArrowSchema *s);
/* way: of the structs on the way down to the values, which may be in lists and maps, the number of
 * the field that is taken of each; NULL: there are none.
 * errors   MR_INVALID_ARGUMENT: columns have no such type; names the field */
mr_code mr__arrow_type_of(const struct ArrowSchema *schema, const int64_t *way, mr__arrow_type *out,
                          mr_status *st) MR_NODISCARD;

/* *keeper releases *array, which it takes over, when it goes itself. */
mr_code mr__arrow_keep(struct ArrowArray *array, mr_buffer **keeper, mr_status *st) MR_NODISCARD;
/* As mr_import_arrow, of entries [from, from + n) of an array that keeper owns, and with a way as
 * above. uneven, of n, is set to true where lists from the third level on differ in length, which
 * NULL makes an error; such a row is empty. */
mr_code mr__arrow_column(mr_array *out, const struct ArrowArray *array, int64_t from, int64_t n,
                         const struct ArrowSchema *schema, const int64_t *way, bool *uneven,
                         mr_buffer *keeper, mr_status *st) MR_NODISCARD;
/* MR_OK unless one of the n entries from `from` on (its own offset not counted) is null. */
mr_code mr__arrow_no_nulls(const struct ArrowArray *array, int64_t from, int64_t n,
                           const struct ArrowSchema *schema, mr_status *st) MR_NODISCARD;
#endif
