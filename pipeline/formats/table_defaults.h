/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TABLE_DEFAULTS_H
#define MR_PIPELINE_FORMATS_TABLE_DEFAULTS_H
/* What columns of tables have in place of nulls, and where a file lacks the column. A default is an
 * array of one row; an array without rows means that a column has no default.
 *
 * thread   any */
#include "pipeline/memory/array.h"

static inline bool mr__table_has_default(const mr_array *defaults, size_t leaf)
{
    return defaults && defaults[leaf].rows == 1;
}

/* *out = `rows` rows of the default. */
mr_code mr__table_repeat(const mr_array *value, size_t rows, mr_array *out,
                         mr_status *st) MR_NODISCARD;
/* Replaces the rows of *a that are null by the default; null: a byte per row. */
mr_code mr__table_fill(mr_array *a, const bool *null, const mr_array *value,
                       mr_status *st) MR_NODISCARD;
#endif
