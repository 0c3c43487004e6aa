/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_CSV_READER_H
#define MR_PIPELINE_FORMATS_TEXT_CSV_READER_H
/* Rows of CSV files (RFC 4180). A row ends at a line end (\n, \r\n or \r) outside quotes, which
 * is not part of it. A byte order mark at the beginning of the file is skipped. A field is quoted
 * if it begins with a quote; a quote in it is doubled. A row is returned as written;
 * mr__csv_field splits it.
 *
 * thread   as readers */
#include "pipeline/formats/format.h"

/* mr_file_opts.own; required. */
typedef struct mr__csv_opts {
    char sep;
} mr__csv_opts;
extern const mr_format mr__format_csv;

/* Reads the field that begins at *at, before `end`: its text, without the quotes around it. *at
 * moves to the first byte of the next field, or to NULL after the last. *doubled: quotes in the
 * text are still doubled.
 * returns  NULL, or what is wrong with the quotes */
const char *mr__csv_field(const char **at, const char *end, char sep, mr_bytes *out, bool *doubled);
#endif
