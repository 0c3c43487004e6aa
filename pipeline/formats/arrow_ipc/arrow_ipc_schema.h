/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SCHEMA_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SCHEMA_H
/* The schema of an Arrow file: its fields in depth-first order, each followed by its descendants.
 *
 *     a: int64                  0  a        n_below 0
 *     p: struct {x, y: list}    1  p        n_below 3
 *                               2    x            0
 *                               3    y            1
 *                               4      item       0
 *
 * A field with a dictionary has the type of the dictionary's values. Record batches contain its
 * indices, in two buffers, and nothing for its descendants.
 *
 * thread   immutable once read
 * source   Arrow columnar format 1.0, Schema.fbs and Message.fbs */
#include "pipeline/formats/arrow_ipc/arrow_ipc_table.h"
#include "pipeline/memory/export.h"
#include "pipeline/params/spec.h"

typedef enum mr__arrow_kind {
    MR__ARROW_NONE,
    MR__ARROW_NULL,
    MR__ARROW_INT,
    MR__ARROW_FLOAT,
    MR__ARROW_BINARY,
    MR__ARROW_UTF8,
    MR__ARROW_BOOL,
    MR__ARROW_DECIMAL,
    MR__ARROW_DATE,
    MR__ARROW_TIME,
    MR__ARROW_TIMESTAMP,
    MR__ARROW_INTERVAL,
    MR__ARROW_LIST,
    MR__ARROW_STRUCT,
    MR__ARROW_UNION,
    MR__ARROW_FIXED_BINARY,
    MR__ARROW_FIXED_LIST,
    MR__ARROW_MAP,
    MR__ARROW_DURATION,
    MR__ARROW_LARGE_BINARY,
    MR__ARROW_LARGE_UTF8,
    MR__ARROW_LARGE_LIST,
    MR__ARROW_RUN_ENDS,
    MR__ARROW_BINARY_VIEW,
    MR__ARROW_UTF8_VIEW,
    MR__ARROW_LIST_VIEW,
    MR__ARROW_LARGE_LIST_VIEW,
    MR__ARROW_N_KINDS
} mr__arrow_kind;

typedef struct mr__arrow_field {
    char *name;
    mr__arrow_kind kind;
    unsigned width; /* bytes of a value, or of an offset; 0: values are bits, or none */
    int64_t size;   /* entries or bytes of each value of a fixed-size list or fixed-size binary */
    bool widened;   /* a 32-bit time, converted to int64 */
    uint8_t n_buffers; /* in a record batch; views: without those that a batch counts itself */
    bool dictionary;   /* values are in dictionary `id`, indexed with type `index` */
    int64_t id;
    mr_dtype index;
    size_t n_children, n_below;
    /* The type in the form that the import takes; format "": columns have no such type. */
    char format[32];
    struct ArrowSchema c;
} mr__arrow_field;

/* Whether the field has offsets. A map is a list of structs of a key and a value. */
static inline bool mr__arrow_is_list(const mr__arrow_field *a)
{
    return a->kind == MR__ARROW_LIST || a->kind == MR__ARROW_LARGE_LIST || a->kind == MR__ARROW_MAP;
}

static inline bool mr__arrow_is_string(const mr__arrow_field *a)
{
    return a->kind == MR__ARROW_BINARY || a->kind == MR__ARROW_UTF8 ||
           a->kind == MR__ARROW_LARGE_BINARY || a->kind == MR__ARROW_LARGE_UTF8;
}

static inline bool mr__arrow_is_view(const mr__arrow_field *a)
{
    return a->kind == MR__ARROW_BINARY_VIEW || a->kind == MR__ARROW_UTF8_VIEW;
}

/* The type of columns that hold only nulls. */
static inline bool mr__arrow_is_null(const mr__arrow_field *a)
{
    return a->kind == MR__ARROW_NULL && !a->dictionary;
}

typedef struct mr__arrow_schema {
    mr__arrow_field *v;
    struct ArrowSchema **pointers; /* targets of c.children */
    /* top-level fields, sorted by name; equal names in file order */
    const mr__arrow_field **columns;
    size_t n_columns;
    size_t n, capacity;
    int version; /* of the metadata, 4 or 5 */
} mr__arrow_schema;

enum { MR__ARROW_MOST_FIELDS = 65536, MR__ARROW_MOST_LEVELS = 64 };

/* Path from a column down to a field within its lists, a struct or values. A struct outside of
 * lists is not a column, but its fields are.
 *
 *     x: list<struct {a, b}>    fields  x, item, b    taken  1 */
typedef struct mr__arrow_way {
    size_t fields[MR__ARROW_MOST_LEVELS]; /* from the column down */
    size_t n;
    /* for each struct on the path, the index of the field taken */
    int64_t taken[MR__ARROW_MOST_LEVELS];
    size_t n_taken;
} mr__arrow_way;

/* Path from field i through its lists. values: those of the field's dictionary. */
mr__arrow_way mr__arrow_way_to(const mr__arrow_schema *s, size_t i, bool values);
/* Path from the struct that `way` leads to, to its field k, which is `child`, and through its
 * lists. */
mr__arrow_way mr__arrow_way_on(const mr__arrow_schema *s, const mr__arrow_way *way, size_t k,
                               size_t child);
static inline size_t mr__arrow_way_end(const mr__arrow_way *way)
{
    return way->fields[way->n - 1];
}

/* Reads *s, zeroed before, from a table Schema. version: from the Message or Footer.
 * errors   MR_DATA_LOSS: damaged; MR_UNIMPLEMENTED: big-endian, an old version */
mr_code mr__arrow_schema_read(mr__arrow_schema *s, mr__flat *f, const mr__flat_table *schema,
                              int64_t version, mr_status *st) MR_NODISCARD;
void mr__arrow_schema_reset(mr__arrow_schema *s);

/* Index of the column with that name, a top-level field; -1: no such column. */
int64_t mr__arrow_schema_find(const mr__arrow_schema *s, const char *name);
/* Returns the spec of the named columns, a record; "x.a" is field a of x, n 0: all columns.
 * errors   MR_INVALID_ARGUMENT: columns have no such type (names column and type); a name has no
 *          column, or two; the file has no columns */
mr_code mr__arrow_schema_spec(const mr__arrow_schema *s, const mr_bytes *names, size_t n,
                              mr_spec **out, mr_status *st) MR_NODISCARD;
/* Checks that the columns of the record spec have its types. A column that does not exist, or holds
 * only nulls, must have a default (defaults: of its leaves, or NULL). all: no others exist.
 * errors   MR_INVALID_ARGUMENT: names the column */
mr_code mr__arrow_schema_check(const mr__arrow_schema *s, const mr_spec *spec, bool all,
                               const mr_array *defaults, mr_status *st) MR_NODISCARD;
#endif
