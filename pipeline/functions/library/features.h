/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_FEATURES_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_FEATURES_H
/* Typed values out of records (parse_example) and those in text (parse_json, parse_csv; the sources
 * jsonl and csv): what is wanted of them, and columns that are filled value by value.
 *
 *     dtype   dtype[3, 4]   dtype[]   feature(dtype, shape=[..], default=v)
 *
 * thread   features are immutable once read; a sheet is one thread's */
#include "pipeline/functions/compiler/typed_tree.h"

typedef struct mr__feature {
    const char *name; /* NULL in a list */
    size_t place;     /* where it is written, from 0 */
    mr_dtype dtype;
    bool ragged; /* any number of values */
    int rank;
    int64_t shape[MR_MAX_RANK];
    size_t n;              /* values of a record; unused where ragged */
    const mr_expr *preset; /* literals, one for all values or one each; NULL: none */
    size_t n_preset;
} mr__feature;

typedef struct mr__features {
    mr__feature *v; /* in order of names, or as listed */
    size_t n;
    bool named;  /* not a list */
    bool vector; /* of records: each feature has an axis before its own */
    const mr_expr *e;
} mr__features;
/* The feature e, called name, with at most `most` axes. who begins the messages.
 * errors   MR_INVALID_ARGUMENT, with its place */
mr_code mr__feature_read(const char *who, const char *name, const mr_expr *e, int most,
                         mr__feature *out, mr_status *st);
/* What a literal of a default is where the dtype is a float: 1, -2.5, nan or -inf. */
double mr__preset_float(const mr_expr *e);
/* What a call names, name=feature, ... or {"name": feature, ...}, or lists ([feature, ...]) for
 * records in input 0, and c->spec: a record or a tuple. The plan of the call is out, which it
 * owns. */
mr_code mr__features_type(mr_call *c, const mr_exprs *given, bool listed, mr_status *st);
/* A record or a list of features that is the text of an op's parameter. op begins the messages. */
mr_code mr__features_parse(const char *op, const char *text, mr__features **out, mr_status *st);
/* The record or tuple that comes out of x, one string or a vector of them. */
mr_code mr__features_spec(const mr__features *f, const mr_leaf *x, mr_spec **out, mr_status *st);
void mr__features_free(void *features); /* mr_function.free_plan; also NULL */

/* Columns as they grow: all features, record by record. */
typedef struct mr__sheet_column {
    char *v;
    size_t n, capacity, begin; /* values; those before the record at hand */
    int64_t *lengths;          /* of the records so far */
} mr__sheet_column;
typedef struct mr__sheet {
    const mr__features *f;
    mr__sheet_column *columns;
    size_t record; /* at hand */
    char *text;    /* of all strings; a string is its offset here until the end */
    size_t n_text, text_capacity, begin_text;
} mr__sheet;
mr_code mr__sheet_start(mr__sheet *s, const mr__features *f, size_t records, mr_status *st);
void mr__sheet_reset(mr__sheet *s); /* also of a zeroed one, and twice */
/* One more value of feature i.
 * errors   MR_OUT_OF_RANGE: it does not fit; MR_RESOURCE_EXHAUSTED */
mr_code mr__sheet_put(mr__sheet *s, size_t i, const void *value, mr_status *st);
mr_code mr__sheet_put_int(mr__sheet *s, size_t i, int64_t v, mr_status *st);
mr_code mr__sheet_put_float(mr__sheet *s, size_t i, double v, mr_status *st);
mr_code mr__sheet_put_bytes(mr__sheet *s, size_t i, const char *v, size_t n, mr_status *st);
/* Keeps the first n bytes of the string that was put last, into feature i. */
void mr__sheet_shorten(mr__sheet *s, size_t i, size_t n);
/* Feature i is not there: its default, or no values where it is ragged.
 * errors   MR_INVALID_ARGUMENT: it has none */
mr_code mr__sheet_put_missing(mr__sheet *s, size_t i, mr_status *st);
/* What was put of the record at hand is as if it were not. */
void mr__sheet_drop(mr__sheet *s);
/* The record is done; good false: it failed, and zeros stand in its place. */
mr_code mr__sheet_next(mr__sheet *s, bool good, mr_status *st);
/* The columns, `k` records for each of `rows` rows. s is reset. */
mr_code mr__sheet_finish(mr__sheet *s, size_t rows, size_t k, mr_array *out, mr_status *st);

/* The values of a JSON object as the record at hand. *bad: the feature that failed, or NULL.
 * errors   MR_INVALID_ARGUMENT, MR_OUT_OF_RANGE: it is none, or not as wanted
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__sheet_put_json(mr__sheet *s, const mr_bytes *text, const char **bad, mr_status *st);
/* A string of which quotes, if they are doubled, stand for one each. */
mr_code mr__sheet_put_quoted(mr__sheet *s, size_t i, const mr_bytes *v, bool doubled,
                             mr_status *st);

/* "true", "false", "1" or "0", in letters of any size, where t is MR_BOOL; else as a number. NULL,
 * or what is wrong with it. */
const char *mr__read_value(const char *s, size_t n, mr_dtype t, void *z);
/* Text as a number of dtype t, without white space around it; NULL, or what is wrong with it: "is
 * no integer". */
const char *mr__read_number(const char *s, size_t n, mr_dtype t, void *z);
#endif
