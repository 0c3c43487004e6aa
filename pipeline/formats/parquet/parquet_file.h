/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_FILE_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_FILE_H
/* Parquet files: their columns, and their rows from any position.
 *
 *     mr__parquet *f = NULL;
 *     mr__parquet_open(&f, "train.parquet", NULL, &st);
 *     mr__parquet_select(f, leaves, n, &st);
 *     mr__parquet_seek(f, 1000000);
 *     while ((rc = mr__parquet_read(f, 1024, columns, &rows, &st)) == MR_OK) ...
 *
 * Only the footer and the chunks of the selected columns are read. The file must support random
 * access, because its contents are described at its end.
 *
 * thread   one at a time per object */
#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/reader.h"

typedef struct mr__parquet mr__parquet;

#define MR__PARQUET_NO_LEAF SIZE_MAX

/* opts (NULL: all zero): only cancel and on_read are used. "-" is standard input, a regular file.
 * errors   as open(2); MR_INVALID_ARGUMENT: not a regular file
 *          MR_DATA_LOSS: not a Parquet file, damaged, or cut short; MR_UNIMPLEMENTED: encrypted */
mr_code mr__parquet_open(mr__parquet **out, const char *path, const mr_file_opts *opts,
                         mr_status *st) MR_NODISCARD;
void mr__parquet_close(mr__parquet *f); /* NULL: no effect */
const mr__parquet_footer *mr__parquet_footer_of(const mr__parquet *f);

/* Selects the n leaves to read, in that order. Once. defaults: of each, or NULL (table_defaults.h);
 * borrowed. A leaf with a default may be MR__PARQUET_NO_LEAF: the file does not have it.
 * errors   MR_UNIMPLEMENTED: a chunk of one has an unknown codec, is encrypted, or is in another
 *          file */
mr_code mr__parquet_select(mr__parquet *f, const size_t *leaves, size_t n, const mr_array *defaults,
                           mr_status *st) MR_NODISCARD;
/* Number of the next row; number of rows in the file. */
int64_t mr__parquet_row(const mr__parquet *f);
int64_t mr__parquet_count(const mr__parquet *f);
/* Makes `row`, at most the number of rows, the next one. Reads nothing until rows are requested. */
void mr__parquet_seek(mr__parquet *f, int64_t row);

/* Returns the next 1 to `want` rows, all in one row group: *rows of them, with a column (empty
 * before) for each selected leaf. Lists are RAGGED; lists of lists are ragged within the row too.
 * MR_END after the last row.
 * errors   MR_INVALID_ARGUMENT: this row has a null, or lists from the third level on that differ
 *          in length; reading continues with the next row
 *          MR_DATA_LOSS and all others, with row and offset: the file is given up, and
 *          mr__parquet_row is the number of rows */
mr_code mr__parquet_read(mr__parquet *f, size_t want, mr_array *columns, size_t *rows,
                         mr_status *st) MR_NODISCARD;
#endif
