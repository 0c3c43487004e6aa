/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_TABLE_SOURCE_H
#define MR_PIPELINE_STREAMS_SOURCES_TABLE_SOURCE_H
/* For ops that read tables: an element is a row, a record of the columns.
 *
 * A graph must know the types of the columns when it is built. Unless the schema is given, they are
 * read from the first file; a copy of the op that reads only some of the files receives the schema
 * (MR_P_OF_SPEC). Every file must have these columns with these types; a column of the schema with
 * a default may be missing. A row with a null in a column without a default is an error in
 * its place.
 *
 * thread   as an op's slots */
#include "pipeline/graph/dataset.h"
#include "pipeline/params/param.h"

/* The params of such an op; an mr__file_kind's compression is at compression. */
typedef struct mr__table_params {
    mr_strs files;
    char *compression; /* of files as a whole: always unset */
    mr_strs columns;   /* empty: all */
    char *schema;      /* text, or NULL */
} mr__table_params;

extern const mr_param mr__table_param_list[];

/* *out = the types of the requested columns of the file; if columns is empty, of all columns.
 * errors   MR_INVALID_ARGUMENT: it has no such column, or the type is not supported */
typedef mr_code (*mr__table_look)(const char *path, const mr_strs *columns, mr_spec **out,
                                  mr_status *st);

/* Checks the params, including the files. Messages begin with `who`. */
mr_code mr__table_check(const char *who, const mr__table_params *p, mr_status *st) MR_NODISCARD;
/* *out = the type of the elements. */
mr_code mr__table_infer(const mr_dataset *self, const mr__table_params *p, mr__table_look look,
                        mr_spec **out, mr_status *st) MR_NODISCARD;
/* *out = the default of each leaf of the spec, without rows where it has none; NULL: no leaf has
 * one. Messages begin with `who`. */
mr_code mr__table_defaults(const char *who, const mr__table_params *p, const mr_spec *spec,
                           mr_array **out, mr_status *st) MR_NODISCARD;
void mr__table_defaults_free(mr_array *defaults, const mr_spec *spec); /* NULL: nothing */
/* true: files with more columns than the first are errors. */
bool mr__table_takes_all(const mr__table_params *p);
#endif
