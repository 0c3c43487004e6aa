/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SCHEMA_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_SCHEMA_H
/* The schema of an Arrow file: its fields, depth first, each followed by those below it.
 *
 *     a: int64                  0  a        n_below 0
 *     p: struct {x, y: list}    1  p        n_below 3
 *                               2    x            0
 *                               3    y            1
 *                               4      item       0
 *
 * A field whose values are those of a dictionary has the type of the values; record batches have
 * its indices, in two buffers, and nothing of what is below it.
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
    unsigned width;    /* bytes of a value, or of an offset; 0: values are bits, or none */
    int64_t size;      /* of fixed lists and fixed binaries: entries or bytes of each */
    bool widened;      /* a time of 32 bits, which becomes an int64 */
    uint8_t n_buffers; /* in a record batch; views: without those that a batch counts itself */
    bool dictionary;   /* its values are those of dictionary `id`, numbered by `index` */
    int64_t id;
    mr_dtype index;
    size_t n_children, n_below;
    /* The same for the import: format "" where columns have no such type. */
    char format[32];
    struct ArrowSchema c;
} mr__arrow_field;

/* Has offsets. A map is a list of structs of a key and a value. */
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

typedef struct mr__arrow_schema {
    mr__arrow_field *v;
    struct ArrowSchema **pointers;   /* those that c.children refer to */
    const mr__arrow_field **columns; /* fields below none, by name; those of one name in order */
    size_t n_columns;
    size_t n, capacity;
    int version; /* of the metadata, 4 or 5 */
} mr__arrow_schema;

enum { MR__ARROW_MOST_FIELDS = 65536, MR__ARROW_MOST_LEVELS = 64 };

/* The way down from a column to a field within its lists, a struct or values. A struct in no list
 * is no column, but its fields are.
 *
 *     x: list<struct {a, b}>    fields  x, item, b    taken  1 */
typedef struct mr__arrow_way {
    size_t fields[MR__ARROW_MOST_LEVELS]; /* from the column on */
    size_t n;
    int64_t taken[MR__ARROW_MOST_LEVELS]; /* of the structs on the way, which field */
    size_t n_taken;
} mr__arrow_way;

/* From field i through the lists that it is of. values: those of the dictionary that it has. */
mr__arrow_way mr__arrow_way_to(const mr__arrow_schema *s, size_t i, bool values);
/* From the struct that `way` leads to to its field k, which is `child`, and through its lists. */
mr__arrow_way mr__arrow_way_on(const mr__arrow_schema *s, const mr__arrow_way *way, size_t k,
                               size_t child);
static inline size_t mr__arrow_way_end(const mr__arrow_way *way)
{
    return way->fields[way->n - 1];
}

/* *s, zeroed before, is read from a table Schema. version: as a Message or Footer has it.
 * errors   MR_DATA_LOSS: damaged; MR_UNIMPLEMENTED: big-endian, an old version */
mr_code mr__arrow_schema_read(mr__arrow_schema *s, mr__flat *f, const mr__flat_table *schema,
                              int64_t version, mr_status *st) MR_NODISCARD;
void mr__arrow_schema_reset(mr__arrow_schema *s);

/* The index of the column called name, or -1: a field that is below none. */
int64_t mr__arrow_schema_find(const mr__arrow_schema *s, const char *name);
/* A record of the columns that are called so, "x.a" of field a of x; n 0: of all.
 * errors   MR_INVALID_ARGUMENT: columns have no such type (names column and type); there is no such
 *          column, or two, or none at all */
mr_code mr__arrow_schema_spec(const mr__arrow_schema *s, const mr_bytes *names, size_t n,
                              mr_spec **out, mr_status *st) MR_NODISCARD;
/* That the columns of the record spec are here and of its types. all: and no others.
 * errors   MR_INVALID_ARGUMENT: names the column */
mr_code mr__arrow_schema_check(const mr__arrow_schema *s, const mr_spec *spec, bool all,
                               mr_status *st) MR_NODISCARD;
#endif
