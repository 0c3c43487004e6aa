/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_CSV_READER_H
#define MR_PIPELINE_FORMATS_TEXT_CSV_READER_H
/* Rows of CSV files (RFC 4180): a row ends at a line's end outside quotes, which is not part of it.
 * A field is quoted if it begins with a quote; a quote in it is written twice. A row is given as it
 * is written, to be split by mr__csv_field.
 *
 * thread   as readers */
#include "pipeline/formats/format.h"

/* mr_file_opts.own; needed. */
typedef struct mr__csv_opts {
    char sep;
} mr__csv_opts;
extern const mr_format mr__format_csv;

/* The field that begins at *at, before `end`: its text, without quotes around it. *at moves to the
 * next field's first byte, or to NULL after the last. *doubled: quotes in it are still written
 * twice.
 * returns  NULL; what is wrong with its quotes */
const char *mr__csv_field(const char **at, const char *end, char sep, mr_bytes *out, bool *doubled);
#endif
