/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_FILE_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_FILE_H
/* Parquet files: their columns, and their rows from any one on.
 *
 *     mr__parquet *f = NULL;
 *     mr__parquet_open(&f, "train.parquet", NULL, &st);
 *     mr__parquet_select(f, leaves, n, &st);
 *     mr__parquet_seek(f, 1000000);
 *     while ((rc = mr__parquet_read(f, 1024, columns, &rows, &st)) == MR_OK) ...
 *
 * Only the footer and the chunks of selected columns are read. A file must be one that can be read
 * at any place: what it holds is said at its end.
 *
 * thread   one at a time per object */
#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/reader.h"

typedef struct mr__parquet mr__parquet;

/* Of opts (NULL: all zero) cancel and on_read count. "-" is standard input, a regular file.
 * errors   as open(2); MR_INVALID_ARGUMENT: no regular file
 *          MR_DATA_LOSS: no Parquet file, damaged, or cut short; MR_UNIMPLEMENTED: encrypted */
mr_code mr__parquet_open(mr__parquet **out, const char *path, const mr_file_opts *opts,
                         mr_status *st) MR_NODISCARD;
void mr__parquet_close(mr__parquet *f); /* NULL: nothing */
const mr__parquet_footer *mr__parquet_footer_of(const mr__parquet *f);

/* Says which leaves are read, n of them, in that order. Once. */
mr_code mr__parquet_select(mr__parquet *f, const size_t *leaves, size_t n,
                           mr_status *st) MR_NODISCARD;
/* The next row, and the number of all. */
int64_t mr__parquet_row(const mr__parquet *f);
int64_t mr__parquet_count(const mr__parquet *f);
/* Row `row`, at most their number, is the next. Nothing is read before that is wanted. */
void mr__parquet_seek(mr__parquet *f, int64_t row);

/* The next 1 to `want` rows, of one group of rows: *rows of them, a column (empty before) for each
 * leaf selected. Lists are RAGGED, lists of lists ragged within the row too. MR_END after the last.
 * errors   MR_INVALID_ARGUMENT: this row has a null, or lists from the third level on that differ
 *          in length; the next one follows
 *          MR_DATA_LOSS and all others, with row and offset: the file is given up, and
 *          mr__parquet_row is the number of all */
mr_code mr__parquet_read(mr__parquet *f, size_t want, mr_array *columns, size_t *rows,
                         mr_status *st) MR_NODISCARD;
#endif
