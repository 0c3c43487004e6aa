/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_FEATURES_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_FEATURES_H
/* Typed values from records (parse_example) and from text (parse_json, parse_csv; the sources jsonl
 * and csv): the description of the requested features, and columns that are filled value by value.
 *
 *     dtype   dtype[3, 4]   dtype[]   feature(dtype, shape=[..], default=v)
 *     json    the text of a value, as bytes
 *     {"name": feature, ...}    a record      [{"name": feature, ...}]    a list of records
 *
 * The last two rows are for JSON only. A list of records becomes a record of lists: each feature in
 * it has an additional first axis of any length.
 *
 * thread   features are immutable once read; a sheet is one thread's */
#include "pipeline/functions/compiler/typed_tree.h"

typedef struct mr__feature {
    const char *name; /* with those of the records it is in, "a.b"; NULL in a list */
    size_t place;     /* its index in the text, from 0 */
    mr_dtype dtype;
    bool raw;    /* the text of a JSON value */
    bool ragged; /* any number of values */
    int lists;   /* of records, that it is in */
    int rank;
    int64_t shape[MR_MAX_RANK];
    size_t n;              /* values per record; unused if ragged */
    const mr_expr *preset; /* default: literals, one for all values or one each; NULL: no default */
    size_t n_preset;
} mr__feature;

/* A feature, or a record of them. */
typedef struct mr__feature_node {
    const char *name;         /* within its record */
    char *path;               /* name, or "a.name"; owned */
    int lists;                /* of records: 0 for a record, 2 for a list of lists of them */
    bool in_list;             /* a node above it has lists */
    size_t first, n_features; /* those within it, or itself */
    struct mr__feature_node *children; /* in order of names; NULL: a feature */
    size_t n, id;                      /* id: its number in the tree */
} mr__feature_node;

typedef struct mr__features {
    mr__feature *v; /* the leaves of the tree, in order of names, or as listed */
    size_t n, room;
    mr__feature_node root;
    size_t n_nodes;
    bool named;  /* not a list */
    bool vector; /* a vector of records: each feature has an additional first axis */
    const mr_expr *e;
} mr__features;
/* Reads the feature e, called name, with at most `most` axes. Messages begin with `who`.
 * errors   MR_INVALID_ARGUMENT, with its place */
mr_code mr__feature_read(const char *who, const char *name, const mr_expr *e, int most,
                         mr__feature *out, mr_status *st);
/* *out = one row of the leaf with the value e, the default of feature `name`: literals, one for all
 * values or one each; [] for a list. Messages begin with `who`.
 * errors   MR_INVALID_ARGUMENT: the leaf cannot have this value */
mr_code mr__feature_default(const char *who, const char *name, const mr_leaf *leaf,
                            const mr_expr *e, mr_array *out, mr_status *st);
/* The value of a default's literal for a float dtype: 1, -2.5, nan or -inf. */
double mr__preset_float(const mr_expr *e);
/* Reads the features in a call's arguments, name=feature, ... or {"name": feature, ...}, or
 * (listed) [feature, ...], for records in input 0. Sets c->spec, a record or a tuple, and
 * c->plan, the mr__features, which the call owns. */
mr_code mr__features_type(mr_call *c, const mr_exprs *given, bool listed, mr_status *st);
/* Reads a record or a list of features from the text of an op's parameter. Messages begin with
 * `op`. json: also records, lists of them, and the type json */
mr_code mr__features_parse(const char *op, const char *text, bool json, mr__features **out,
                           mr_status *st);
/* The spec of the record or tuple parsed from x, one string or a vector of strings. */
mr_code mr__features_spec(const mr__features *f, const mr_leaf *x, mr_spec **out, mr_status *st);
void mr__features_free(void *features); /* mr_function.free_plan; also NULL */

/* Columns under construction: all features, record by record. */
typedef struct mr__sheet_column {
    char *v;
    size_t n, capacity, begin; /* values; begin: of the current record */
    int64_t *lengths;          /* of the records so far: entries of axis 0 */
    /* of lists of lists: the lengths of the inner ones; begin: of the current record */
    int64_t *inner;
    size_t n_inner, inner_room, inner_begin, open; /* open: where the values of the next begin */
} mr__sheet_column;
typedef struct mr__sheet {
    const mr__features *f;
    mr__sheet_column *columns;
    size_t record; /* the current one */
    char *text;    /* of all strings; until the end a string is an offset into it */
    size_t n_text, text_capacity, begin_text;
    uint64_t *seen, object; /* for each node of the tree: the last object that it was in; JSON */
} mr__sheet;
mr_code mr__sheet_start(mr__sheet *s, const mr__features *f, size_t records, mr_status *st);
void mr__sheet_reset(mr__sheet *s); /* also of a zeroed one, and twice */
/* Append a value to feature i.
 * errors   MR_OUT_OF_RANGE: it does not fit; MR_RESOURCE_EXHAUSTED */
mr_code mr__sheet_put(mr__sheet *s, size_t i, const void *value, mr_status *st);
mr_code mr__sheet_put_int(mr__sheet *s, size_t i, int64_t v, mr_status *st);
mr_code mr__sheet_put_float(mr__sheet *s, size_t i, double v, mr_status *st);
mr_code mr__sheet_put_bytes(mr__sheet *s, size_t i, const char *v, size_t n, mr_status *st);
/* Truncates the string put last, into feature i, to its first n bytes. */
void mr__sheet_shorten(mr__sheet *s, size_t i, size_t n);
/* Feature i is missing: puts its default, or no values if it is ragged.
 * errors   MR_INVALID_ARGUMENT: it has no default */
mr_code mr__sheet_put_missing(mr__sheet *s, size_t i, mr_status *st);
/* Discards the values of the current record. */
void mr__sheet_drop(mr__sheet *s);
/* Finishes the record; good false: it failed, and zeros take its place. */
mr_code mr__sheet_next(mr__sheet *s, bool good, mr_status *st);
/* The columns, `k` records for each of `rows` rows. s is reset. */
mr_code mr__sheet_finish(mr__sheet *s, size_t rows, size_t k, mr_array *out, mr_status *st);

/* Begins and ends an entry of the outer list in features i with lists of lists. */
void mr__sheet_begin_inner(mr__sheet *s, size_t i);
mr_code mr__sheet_end_inner(mr__sheet *s, size_t i, mr_status *st);

/* Puts the values of a JSON object into the current record. *bad: the feature that failed, or NULL.
 * errors   MR_INVALID_ARGUMENT, MR_OUT_OF_RANGE: not an object, or it does not match the features
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__sheet_put_json(mr__sheet *s, const mr_bytes *text, const char **bad, mr_status *st);
/* Puts a string; doubled: each pair of quotes in it becomes one quote. */
mr_code mr__sheet_put_quoted(mr__sheet *s, size_t i, const mr_bytes *v, bool doubled,
                             mr_status *st);

/* Parses a bool, "true", "false", "1" or "0" in any case, if t is MR_BOOL, else a number. Returns
 * NULL, or a description of the error. */
const char *mr__read_value(const char *s, size_t n, mr_dtype t, void *z);
/* Parses a number of dtype t, without white space around it. Returns NULL, or a description of the
 * error. */
const char *mr__read_number(const char *s, size_t n, mr_dtype t, void *z);
#endif
