/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_TABLE_SOURCE_H
#define MR_PIPELINE_STREAMS_SOURCES_TABLE_SOURCE_H
/* What ops have in common whose files are tables: a row is an element, a record of the columns.
 *
 * A graph has to know the types of the columns when it is built. Unless the schema is given, the
 * first file says them; an op that is made from this one to read a part of the files is given it
 * (MR_P_OF_SPEC). Every file must have these columns, of these types. A row with a null is an error
 * in its place.
 *
 * thread   as an op's slots */
#include "pipeline/graph/dataset.h"
#include "pipeline/params/param.h"

/* The params of such an op; an mr__file_kind's compression is at compression. */
typedef struct mr__table_params {
    mr_strs files;
    char *compression; /* of files as a whole: none */
    mr_strs columns;   /* none: all */
    char *schema;      /* text, or NULL */
} mr__table_params;

extern const mr_param mr__table_param_list[];

/* *out = what the columns of the file are that are asked for; of none: what all are.
 * errors   MR_INVALID_ARGUMENT: it has no such column, or one that elements cannot have */
typedef mr_code (*mr__table_look)(const char *path, const mr_strs *columns, mr_spec **out,
                                  mr_status *st);

/* The checks of the params; of the files too. who begins the messages. */
mr_code mr__table_check(const char *who, const mr__table_params *p, mr_status *st) MR_NODISCARD;
/* *out = the type of the elements. */
mr_code mr__table_infer(const mr_dataset *self, const mr__table_params *p, mr__table_look look,
                        mr_spec **out, mr_status *st) MR_NODISCARD;
/* Rows of a file. */
typedef mr_code (*mr__table_count)(const char *path, int64_t *rows, mr_status *st);
/* Rows of all files; unknown where a file does not say. */
int64_t mr__table_cardinality(const mr__table_params *p, mr__table_count count);
/* Files with more columns than the first are errors. */
bool mr__table_takes_all(const mr__table_params *p);
#endif
