/* SPDX-License-Identifier: Apache-2.0 */
/* The schema is a list of nodes in depth-first order, each with the number of its children. It is
 * walked with a stack of the open groups, which determines the name and levels of a leaf, and
 * whether it can be a column. */
#include "pipeline/formats/parquet/parquet_footer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/parquet/parquet_codec.h"
#include "pipeline/formats/parquet/thrift_compact.h"
#include "pipeline/formats/table_flaws.h"

enum { MOST_LEAVES = 65536, MOST_DEPTH = 64, MOST_NAME = 4096, MOST_GROUPS = 1 << 24 };

/* Converted types, and values for the LogicalTypes without one. */
enum {
    NO_TYPE = -1,
    UTF8 = 0,
    MAP = 1,
    MAP_KEY_VALUE = 2,
    LIST = 3,
    DECIMAL = 5,
    UINT_8 = 11,
    UINT_16 = 12,
    UINT_32 = 13,
    UINT_64 = 14,
    INT_8 = 15,
    INT_16 = 16,
    INTERVAL = 21,
    HALF = 100,
    VARIANT = 101,
    NULLS = 102
};

/* A node of the schema as written. */
typedef struct element {
    int64_t type, size, repetition, children, kind, scale;
    mr_bytes name;
} element;

/* An open group. */
typedef struct level {
    int64_t left;     /* children to come */
    size_t path_size; /* of the path down to the group, each part with its NUL byte */
    size_t n_parts;
    int definition, lists, in_list[MR__PARQUET_LISTS];
    uint32_t list[MR__PARQUET_LISTS];
    bool is_list;        /* annotated as a list: its child is repeated */
    bool is_map;         /* annotated as a map: its child holds the keys and the values */
    bool is_entry;       /* the repeated group between a list and its entries */
    const char *refusal; /* for all leaves in the group */
} level;

typedef struct walk {
    level levels[MOST_DEPTH];
    int depth; /* open groups */
    char path[MOST_NAME];
} walk;

static mr_code damaged(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "damaged footer: %s", what);
}

/* ---- nodes of the schema ---- */

static int64_t integer_kind(int64_t bits, bool is_signed)
{
    return bits == 8    ? (is_signed ? INT_8 : UINT_8)
           : bits == 16 ? (is_signed ? INT_16 : UINT_16)
           : is_signed  ? NO_TYPE
           : bits == 32 ? UINT_32
                        : UINT_64;
}

/* Reads one field of the union LogicalType; `id` is the type. */
static void read_logical_type(mr__thrift *t, const mr__thrift_field *which, element *e)
{
    static const int8_t same[] = {[2] = MAP, [3] = LIST, [5] = DECIMAL};
    mr__thrift_field f = {0};
    int64_t bits = 64;
    bool is_signed = true;
    if (!mr__thrift_enter(t, which))
        return;
    while (mr__thrift_next(t, &f)) {
        if (which->id == 10 && f.id == 1)
            bits = mr__thrift_int(t, &f);
        else if (which->id == 10 && f.id == 2)
            is_signed = mr__thrift_bool(t, &f);
        else if (which->id == 5 && f.id == 1)
            e->scale = mr__thrift_int(t, &f);
        else
            mr__thrift_skip(t, &f);
    }
    if (which->id == 10)
        e->kind = integer_kind(bits, is_signed);
    else if (which->id == 11)
        e->kind = NULLS;
    else if (which->id == 15)
        e->kind = HALF;
    else if (which->id == 16)
        e->kind = VARIANT;
    else if (which->id > 0 && (size_t)which->id < sizeof same && same[which->id])
        e->kind = same[which->id];
}

static void read_element(mr__thrift *t, element *e)
{
    mr__thrift_field f = {0}, which;
    *e = (element){.type = -1, .kind = NO_TYPE};
    while (mr__thrift_next(t, &f))
        switch (f.id) {
        case 1:
            e->type = mr__thrift_int(t, &f);
            break;
        case 2:
            e->size = mr__thrift_int(t, &f);
            break;
        case 3:
            e->repetition = mr__thrift_int(t, &f);
            break;
        case 4:
            e->name = mr__thrift_bytes(t, &f);
            break;
        case 5:
            e->children = mr__thrift_int(t, &f);
            break;
        case 6:
            e->kind = mr__thrift_int(t, &f);
            break;
        case 7:
            e->scale = mr__thrift_int(t, &f);
            break;
        case 10:
            which = (mr__thrift_field){0};
            if (mr__thrift_enter(t, &f))
                while (mr__thrift_next(t, &which))
                    read_logical_type(t, &which, e);
            break;
        default:
            mr__thrift_skip(t, &f);
        }
}

/* ---- the tree ---- */

/* Appends a part to the path of the open groups. */
static mr_code add_part(walk *w, const mr_bytes *name, level *at, mr_status *st)
{
    size_t n = at->path_size;
    if (n + name->size + 1 > sizeof w->path)
        return damaged("a name of more than 4 KiB", st);
    if (name->size) {
        if (memchr(name->data, '\0', name->size))
            return damaged("a name with a NUL byte", st);
        memcpy(w->path + n, name->data, name->size);
    }
    w->path[n + name->size] = '\0';
    at->path_size = n + name->size + 1;
    at->n_parts++;
    return MR_OK;
}

static mr_dtype dtype_of(const element *e, const char **refusal)
{
    switch (e->type) {
    case MR__PARQUET_BOOLEAN:
        return MR_BOOL;
    case MR__PARQUET_INT32:
    case MR__PARQUET_INT64:
        if (e->kind == DECIMAL && e->scale != 0)
            *refusal = "it holds decimal numbers; cast it to a float or an integer first";
        return e->type == MR__PARQUET_INT64 ? (e->kind == UINT_64 ? MR_UINT64 : MR_INT64)
               : e->kind == INT_8           ? MR_INT8
               : e->kind == INT_16          ? MR_INT16
               : e->kind == UINT_8          ? MR_UINT8
               : e->kind == UINT_16         ? MR_UINT16
               : e->kind == UINT_32         ? MR_UINT32
                                            : MR_INT32;
    case MR__PARQUET_INT96:
        *refusal = "it holds times as INT96, which the format has deprecated; write it with 64-bit "
                   "timestamps (pyarrow: use_deprecated_int96_timestamps=False)";
        return MR_INT64;
    case MR__PARQUET_FLOAT:
        return MR_FLOAT32;
    case MR__PARQUET_DOUBLE:
        return MR_FLOAT64;
    default:
        if (e->kind == DECIMAL)
            *refusal = "it holds decimal numbers; cast it to a float or an integer first";
        if (e->kind == INTERVAL)
            *refusal = "it holds intervals; cast it first";
        return e->type == MR__PARQUET_FIXED && e->kind == HALF && e->size == 2 ? MR_FLOAT16
                                                                               : MR_STRING;
    }
}

static mr_code add_leaf(mr__parquet_footer *f, const walk *w, const element *e, const level *at,
                        mr_status *st)
{
    if (e->type < 0 || e->type > MR__PARQUET_FIXED)
        return damaged("a column of an unknown type", st);
    if (e->type == MR__PARQUET_FIXED && (e->size < 1 || e->size > MR__PARQUET_MOST_PAGE))
        return damaged("values of an invalid fixed length", st);
    MR_TRY(MR_GROW(f->leaves, f->leaves_room, f->n_leaves + 1, MOST_LEAVES,
                   "the columns of a Parquet file", st));
    mr__parquet_leaf *leaf = &f->leaves[f->n_leaves];
    *leaf = (mr__parquet_leaf){.type = (mr__parquet_type)e->type,
                               .size = (int32_t)e->size,
                               .n_parts = at->n_parts,
                               .lists = at->lists,
                               .max_definition = at->definition,
                               .nulls = e->kind == NULLS,
                               .refusal = at->refusal};
    memcpy(leaf->in_list, at->in_list, sizeof leaf->in_list);
    memcpy(leaf->list, at->list, sizeof leaf->list);
    const char *refusal = NULL;
    leaf->dtype = dtype_of(e, &refusal);
    if (leaf->nulls)
        refusal = leaf->lists ? MR__TABLE_NULL_LISTS : MR__TABLE_ALL_NULL;
    if (!leaf->refusal)
        leaf->refusal = refusal;
    f->n_leaves++;
    leaf->path = mr_memdup(w->path, at->path_size);
    leaf->name = mr_memdup(w->path, at->path_size);
    if (!leaf->path || !leaf->name)
        return mr_fail_memory(st, at->path_size, "a column's name");
    for (size_t i = 0; i + 1 < at->path_size; i++)
        if (!leaf->name[i])
            leaf->name[i] = '.';
    return MR_OK;
}

/* Whether the repeated group in a list is itself the entry, a group of one column, instead of a
 * level between the list and its entries: the names that old writers use for that. */
static bool is_called_entry(const mr_bytes *name)
{
    static const char end[] = "_tuple";
    size_t n = sizeof end - 1;
    return (name->size == 5 && memcmp(name->data, "array", 5) == 0) ||
           (name->size >= n && memcmp(name->data + name->size - n, end, n) == 0);
}

/* Enters a list that contains node `number`. */
static void enter_list(level *at, uint32_t number)
{
    if (at->lists == MR__PARQUET_LISTS) {
        at->refusal = at->refusal ? at->refusal : "it holds lists more than 8 deep";
        return;
    }
    at->list[at->lists] = number;
    at->in_list[at->lists++] = at->definition;
}

/* Sets *at for node `number` in the open groups. */
static mr_code enter(walk *w, const element *e, uint32_t number, level *at, mr_status *st)
{
    const level *up = w->depth ? &w->levels[w->depth - 1] : NULL;
    bool group = e->children > 0, is_repeated = e->repetition == MR__PARQUET_REPEATED;
    *at = up ? *up : (level){0};
    at->left = e->children;
    at->is_list = at->is_map = at->is_entry = false;
    if (!up) /* the root, whose name and repetition have no meaning */
        return MR_OK;
    if (e->repetition < MR__PARQUET_REQUIRED || e->repetition > MR__PARQUET_REPEATED)
        return damaged("a column that is neither required, optional nor repeated", st);
    at->definition += e->repetition != MR__PARQUET_REQUIRED;
    if (is_repeated)
        enter_list(at, number);
    if (group && e->kind == VARIANT)
        at->refusal = "it is a variant";
    if (group && e->children == 1 && (!is_repeated || up->is_list)) {
        at->is_list = e->kind == LIST;
        at->is_map = e->kind == MAP || e->kind == MAP_KEY_VALUE;
        at->is_entry = is_repeated && !at->is_list && !at->is_map && !is_called_entry(&e->name);
    }
    bool hidden = is_repeated ? up->is_list || (up->is_map && group) : up->is_entry;
    return hidden ? MR_OK : add_part(w, &e->name, at, st);
}

static mr_code read_schema(mr__thrift *t, size_t n, mr__parquet_footer *f, mr_status *st)
{
    walk w = {.depth = 0};
    for (size_t i = 0; i < n; i++) {
        element e;
        level at;
        read_element(t, &e);
        if (t->bad)
            return damaged("its schema cannot be read", st);
        if (e.children < 0 || (i > 0 && w.depth == 0))
            return damaged("a schema of more nodes than its groups have", st);
        MR_TRY(enter(&w, &e, (uint32_t)i, &at, st));
        if (w.depth)
            w.levels[w.depth - 1].left--;
        if (e.children > 0 || i == 0) {
            if (w.depth == MOST_DEPTH)
                return damaged("groups more than 64 deep", st);
            w.levels[w.depth++] = at;
        } else
            MR_TRY(add_leaf(f, &w, &e, &at, st));
        while (w.depth && w.levels[w.depth - 1].left == 0)
            w.depth--;
    }
    if (w.depth)
        return damaged("a schema of fewer nodes than its groups have", st);
    return MR_OK;
}

/* ---- chunks ---- */

typedef struct column_meta {
    int64_t type, codec, values, bytes, size, data, dictionary;
    bool there;
} column_meta;

static void read_column_meta(mr__thrift *t, column_meta *m)
{
    mr__thrift_field f = {0};
    *m =
        (column_meta){.type = -1, .codec = -1, .values = -1, .size = -1, .data = -1, .there = true};
    while (mr__thrift_next(t, &f))
        switch (f.id) {
        case 1:
            m->type = mr__thrift_int(t, &f);
            break;
        case 4:
            m->codec = mr__thrift_int(t, &f);
            break;
        case 5:
            m->values = mr__thrift_int(t, &f);
            break;
        case 6:
            m->bytes = mr__thrift_int(t, &f);
            break;
        case 7:
            m->size = mr__thrift_int(t, &f);
            break;
        case 9:
            m->data = mr__thrift_int(t, &f);
            break;
        case 11:
            m->dictionary = mr__thrift_int(t, &f);
            break;
        default:
            mr__thrift_skip(t, &f);
        }
}

static mr_code read_chunk(mr__thrift *t, const mr__parquet_leaf *leaf, int64_t end,
                          mr__parquet_chunk *c, mr_status *st)
{
    mr__thrift_field f = {0};
    column_meta m = {0};
    bool elsewhere = false, encrypted = false;
    while (mr__thrift_next(t, &f)) {
        if (f.id == 1)
            elsewhere = mr__thrift_bytes(t, &f).size > 0;
        else if (f.id == 3 && mr__thrift_enter(t, &f))
            read_column_meta(t, &m);
        else {
            encrypted = encrypted || f.id == 8 || f.id == 9;
            mr__thrift_skip(t, &f);
        }
    }
    if (t->bad)
        return damaged("its row groups cannot be read", st);
    *c = (mr__parquet_chunk){0};
    if (elsewhere || encrypted) {
        c->refusal = encrypted ? "it is encrypted" : "it is stored in another file";
        return MR_OK;
    }
    c->refusal = mr__parquet_codec_refusal(m.codec);
    c->begin = m.dictionary > 0 && m.dictionary < m.data ? m.dictionary : m.data;
    c->size = m.size;
    c->values = m.values;
    c->bytes = m.bytes;
    c->codec = (int32_t)m.codec;
    if (!m.there || m.type != (int64_t)leaf->type || m.values < 0 || m.size < 0 || m.bytes < 0)
        return mr_fail(st, MR_DATA_LOSS,
                       "damaged footer: column %.80s has a chunk without a size, or of another "
                       "type",
                       leaf->name);
    if (c->values == 0) /* without values no place is required */
        c->size = 0;
    else if (c->begin < 4 || c->begin > end || c->size > end - c->begin)
        return mr_fail(st, MR_DATA_LOSS,
                       "damaged footer: column %.80s has a chunk of %" PRId64 " bytes at %" PRId64
                       ", outside the file",
                       leaf->name, c->size, c->begin);
    return MR_OK;
}

static mr_code read_group(mr__thrift *t, mr__parquet_footer *f, int64_t end, mr_status *st)
{
    mr__thrift_field field = {0};
    MR_TRY(MR_GROW(f->groups, f->groups_room, f->n_groups + 1, MOST_GROUPS,
                   "the row groups of a Parquet file", st));
    mr__parquet_group *g = &f->groups[f->n_groups++];
    *g = (mr__parquet_group){.first = f->rows, .rows = -1};
    while (mr__thrift_next(t, &field)) {
        if (field.id == 3)
            g->rows = mr__thrift_int(t, &field);
        else if (field.id == 1 && !g->chunks) {
            size_t n = mr__thrift_list(t, &field, MR__THRIFT_STRUCT);
            if (n != f->n_leaves)
                return damaged("a row group that lacks columns", st);
            g->chunks = mr_calloc(n ? n : 1, sizeof *g->chunks);
            if (!g->chunks)
                return mr_fail_memory(st, n * sizeof *g->chunks, "a row group");
            for (size_t i = 0; i < n; i++)
                MR_TRY(read_chunk(t, &f->leaves[i], end, &g->chunks[i], st));
        } else
            mr__thrift_skip(t, &field);
    }
    if (t->bad || g->rows < 0 || !g->chunks || g->rows > INT64_MAX - f->rows)
        return damaged("its row groups cannot be read", st);
    f->rows += g->rows;
    return MR_OK;
}

/* ---- faults of old writers ---- */

/* true: text is "NAME version X.Y.Z..." with a version before this one, or with none. */
static bool is_before(const mr_bytes *text, const char *name, int major, int minor, int patch)
{
    const int limit[] = {major, minor, patch};
    size_t n = strlen(name), at = n;
    static const char word[] = " version ";
    if (text->size < n || memcmp(text->data, name, n) != 0)
        return false;
    if (text->size - n < sizeof word - 1 || memcmp(text->data + n, word, sizeof word - 1) != 0)
        return text->size == n || text->data[n] == ' ' || text->data[n] == '(';
    at += sizeof word - 1;
    for (size_t k = 0; k < 3; k++) {
        int v = 0;
        while (at < text->size && text->data[at] >= '0' && text->data[at] <= '9' && v < 1000000)
            v = 10 * v + (text->data[at++] - '0');
        if (v != limit[k])
            return v < limit[k];
        at += at < text->size && text->data[at] == '.';
    }
    return false;
}

/* Arrow before version 3 compressed pages of version 2 and said that it had not (ARROW-10353).
 * parquet-mr before 1.2.9 did not count the head of a dictionary in the size of its chunk
 * (IMPALA-694); its bytes, at most 100, are before the next chunk or the footer. */
static void mend(mr__parquet_footer *f, const mr_bytes *writer, int64_t end)
{
    enum { MOST_HEAD = 100 };
    bool compressed = is_before(writer, "parquet-cpp-arrow", 3, 0, 0) ||
                      is_before(writer, "parquet-cpp", INT32_MAX, 0, 0);
    bool padded = is_before(writer, "parquet-mr", 1, 2, 9);
    for (size_t i = 0; i < f->n_groups; i++)
        for (size_t k = 0; k < f->n_leaves; k++) {
            mr__parquet_chunk *c = &f->groups[i].chunks[k];
            int64_t left = end - c->begin - c->size;
            c->always_compressed = compressed;
            c->padded = padded && c->size > 0;
            if (c->padded)
                c->size += left < MOST_HEAD ? left : MOST_HEAD;
        }
}

static mr_code read_fields(mr__thrift *t, int64_t end, mr__parquet_footer *f, mr_status *st)
{
    mr_bytes writer = {0};
    mr__thrift_field field = {0};
    bool schema = false, groups = false;
    int64_t rows = -1;
    while (mr__thrift_next(t, &field)) {
        if (field.id == 2 && !schema) {
            schema = true;
            MR_TRY(read_schema(t, mr__thrift_list(t, &field, MR__THRIFT_STRUCT), f, st));
        } else if (field.id == 3)
            rows = mr__thrift_int(t, &field);
        else if (field.id == 6)
            writer = mr__thrift_bytes(t, &field);
        else if (field.id == 4 && !groups) {
            groups = true;
            size_t n = mr__thrift_list(t, &field, MR__THRIFT_STRUCT);
            for (size_t i = 0; i < n && schema; i++)
                MR_TRY(read_group(t, f, end, st));
            if (n && !schema)
                return damaged("row groups before the schema", st);
        } else if (field.id == 8)
            return mr_fail(st, MR_UNIMPLEMENTED,
                           "the file is encrypted; decrypt it first (no key can be given)");
        else
            mr__thrift_skip(t, &field);
    }
    if (t->bad || !schema)
        return damaged("it cannot be read", st);
    if (rows != f->rows && rows != 0) /* 0: parquet-rs 0.3 wrote no other number */
        return mr_fail(st, MR_DATA_LOSS,
                       "damaged footer: %" PRId64 " rows in total, but %" PRId64
                       " in its row groups",
                       rows, f->rows);
    mend(f, &writer, end);
    return MR_OK;
}

const char *mr__parquet_footer_refusal(const mr__parquet_footer *f, size_t leaf)
{
    for (size_t i = 0; i < f->n_groups; i++)
        if (f->groups[i].chunks[leaf].refusal)
            return f->groups[i].chunks[leaf].refusal;
    return NULL;
}

mr_code mr__parquet_footer_read(const uint8_t *p, size_t n, int64_t end, mr__parquet_footer *out,
                                mr_status *st)
{
    mr__thrift t = {.at = p, .end = p + n};
    *out = (mr__parquet_footer){0};
    mr_code rc = read_fields(&t, end, out, st);
    if (rc != MR_OK)
        mr__parquet_footer_reset(out);
    return rc;
}

void mr__parquet_footer_reset(mr__parquet_footer *f)
{
    for (size_t i = 0; i < f->n_leaves; i++) {
        mr_free(f->leaves[i].path);
        mr_free(f->leaves[i].name);
    }
    for (size_t i = 0; i < f->n_groups; i++)
        mr_free(f->groups[i].chunks);
    mr_free(f->leaves);
    mr_free(f->groups);
    *f = (mr__parquet_footer){0};
}
