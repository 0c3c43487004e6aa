/* SPDX-License-Identifier: Apache-2.0 */
/* The head is a literal of Python: one dictionary, with strings, integers, True, False, tuples and
 * lists in it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/formats/npy.h"
#include "pipeline/params/infer.h"

enum { MAGIC = 6, MOST_HEAD = 1 << 20, MOST_FIELDS = 65536, MOST_NAME = 1024, MOST_LEVELS = 16 };

typedef struct text {
    const char *at, *end;
} text;

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "the head of the NPY file is damaged");
}

mr_code mr__npy_head_size(const uint8_t *p, size_t n, size_t *size, mr_status *st)
{
    if (n < 12 || memcmp(p, "\x93NUMPY", MAGIC) != 0)
        return mr_fail(st, MR_DATA_LOSS,
                       n ? "not an NPY file: it does not begin with \"\\x93NUMPY\""
                         : "not an NPY file: it is empty");
    if (p[6] < 1 || p[6] > 3)
        return mr_fail(st, MR_UNIMPLEMENTED, "version %d of NPY files is not known", p[6]);
    size_t before = p[6] == 1 ? 10 : 12;
    uint64_t head = mr__load_le(p + 8, before - 8);
    if (head > MOST_HEAD)
        return damaged(st);
    *size = before + (size_t)head;
    return MR_OK;
}

void mr__npy_type_reset(mr__npy_type *t)
{
    for (size_t i = 0; i < t->n; i++)
        mr_free(t->fields[i].name);
    mr_free(t->fields);
    *t = (mr__npy_type){0};
}

/* ---- Python's literals ---- */

/* true: the next sign is c, which is skipped. */
static bool take(text *t, char c)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
        t->at++;
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool is_next(text *t, char c)
{
    text before = *t;
    bool is = take(t, c);
    *t = before;
    return is;
}

/* A string in either quotes; false: it is missing or too long. */
static bool read_string(text *t, char *out, size_t room)
{
    size_t n = 0;
    char quote = is_next(t, '\'') ? '\'' : '"';
    if (!take(t, quote))
        return false;
    for (; t->at < t->end && *t->at != quote; n++) {
        if (*t->at == '\\' && t->end - t->at > 3 && t->at[1] == 'x') {
            unsigned v;
            if (sscanf(t->at + 2, "%2x", &v) != 1 || v == 0)
                return false;
            out[n] = (char)v;
            t->at += 4;
        } else {
            t->at += *t->at == '\\';
            if (t->at == t->end || *t->at == '\0')
                return false;
            out[n] = *t->at++;
        }
        if (n + 2 > room)
            return false;
    }
    out[n] = '\0';
    return take(t, quote);
}

static bool read_count(text *t, int64_t *out)
{
    int64_t v = 0;
    bool any = false;
    (void)is_next(t, ' ');
    while (t->at < t->end && *t->at == ' ')
        t->at++;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; any = true)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *t->at++ - '0', &v))
            return false;
    if (t->at < t->end && *t->at == 'L') /* of Python 2 */
        t->at++;
    *out = v;
    return any;
}

/* (2, 3), (2,), () or 2 */
static bool read_shape(text *t, int most, int *rank, int64_t *shape)
{
    *rank = 0;
    if (!take(t, '(')) {
        *rank = 1;
        return read_count(t, shape);
    }
    while (!take(t, ')')) {
        if (*rank == most || !read_count(t, &shape[*rank]))
            return false;
        ++*rank;
        if (!take(t, ',') && !is_next(t, ')'))
            return false;
    }
    return true;
}

/* ---- types ---- */

/* Reads "<f4". */
static mr_code read_code(const char *code, const char *name, mr__npy_field *f, mr_status *st)
{
    static const struct {
        const char *code;
        mr_dtype dtype;
    } types[] = {{"b1", MR_BOOL},   {"i1", MR_INT8},    {"i2", MR_INT16},   {"i4", MR_INT32},
                 {"i8", MR_INT64},  {"u1", MR_UINT8},   {"u2", MR_UINT16},  {"u4", MR_UINT32},
                 {"u8", MR_UINT64}, {"f2", MR_FLOAT16}, {"f4", MR_FLOAT32}, {"f8", MR_FLOAT64},
                 {"M8", MR_INT64},  {"m8", MR_INT64}};
    const char *at = code + (*code && strchr("<>|=", *code) != NULL);
    char unit[4] = "";
    unsigned size = 0;
    f->swapped = *code == '>';
    f->kind = *at;
    snprintf(unit, sizeof unit, "%.2s", at);
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].code, unit) == 0 && (at[2] == '\0' || at[2] == '[')) {
            f->dtype = types[i].dtype;
            f->stored = mr_dtype_size(f->dtype);
            known = true;
        }
    if ((*at == 'S' || *at == 'a' || *at == 'U') && sscanf(at + 1, "%9u", &size) == 1) {
        f->kind = *at == 'U' ? 'U' : 'S';
        f->dtype = MR_STRING;
        f->stored = size * (*at == 'U' ? 4U : 1U);
        known = true;
    }
    if (known)
        return MR_OK;
    const char *why = *at == 'O'   ? "Python objects, which are pickled; save numbers or strings"
                      : *at == 'c' ? "complex numbers; save their real and imaginary parts"
                      : *at == 'V' ? "bytes without a type; view them as uint8"
                                   : "a type that is not read";
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s%.200s%sthe array holds '%.20s': %s",
                   *name ? "field " : "", name, *name ? ": " : "", code, why);
}

static mr_code add_field(mr__npy_type *t, const char *name, const mr__npy_field *f, mr_status *st)
{
    MR_TRY(MR_GROW(t->fields, t->room, t->n + 1, MOST_FIELDS, "the fields of an NPY file", st));
    mr__npy_field *to = &t->fields[t->n];
    *to = *f;
    to->name = mr_strdup(name);
    if (!to->name)
        return mr_fail_memory(st, strlen(name), "a field's name");
    t->n++;
    return MR_OK;
}

static mr_code too_large(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "an entry of the NPY file is larger than can be");
}

static mr_code read_fields(text *t, const char *prefix, int level, mr__npy_type *out,
                           mr_status *st);

/* ('name', '<f4', (2, 3)), after the bracket. */
static mr_code read_field(text *t, const char *prefix, int level, mr__npy_type *out, mr_status *st)
{
    char own[MOST_NAME], name[MOST_NAME + 1], code[64];
    mr__npy_field f = {.items = 1, .values = 1, .offset = out->item};
    bool titled = take(t, '(');
    if (!read_string(t, own, sizeof own))
        return damaged(st);
    if (titled && (!take(t, ',') || !read_string(t, own, sizeof own) || !take(t, ')')))
        return damaged(st);
    if (snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "/" : "", own) >= (int)sizeof name)
        return damaged(st);
    if (!take(t, ','))
        return damaged(st);
    if (is_next(t, '[')) {
        if (level == MOST_LEVELS)
            return damaged(st);
        MR_TRY(read_fields(t, name, level + 1, out, st));
        (void)take(t, ',');
        return take(t, ')') ? MR_OK
                            : mr_fail(st, MR_INVALID_ARGUMENT,
                                      "field %.200s: an array of structures in a structure is not "
                                      "read",
                                      name);
    }
    if (!read_string(t, code, sizeof code))
        return damaged(st);
    bool filler = !*own && strchr(code, 'V'); /* bytes that align what follows */
    if (filler && sscanf(strchr(code, 'V') + 1, "%9zu", &f.stored) != 1)
        return damaged(st);
    if (!filler)
        MR_TRY(read_code(code, name, &f, st));
    if (take(t, ',') && !is_next(t, ')') && !read_shape(t, MR_MAX_RANK, &f.rank, f.shape))
        return damaged(st);
    (void)take(t, ',');
    if (!take(t, ')'))
        return damaged(st);
    size_t bytes = f.stored;
    for (int d = 0; d < f.rank; d++)
        if (__builtin_mul_overflow(f.values, (size_t)f.shape[d], &f.values))
            return too_large(st);
    if (__builtin_mul_overflow(bytes, f.values, &bytes) ||
        __builtin_add_overflow(out->item, bytes, &out->item))
        return too_large(st);
    return filler ? MR_OK : add_field(out, name, &f, st);
}

static mr_code read_fields(text *t, const char *prefix, int level, mr__npy_type *out, mr_status *st)
{
    if (!take(t, '['))
        return damaged(st);
    while (!take(t, ']')) {
        if (!take(t, '('))
            return damaged(st);
        MR_TRY(read_field(t, prefix, level, out, st));
        if (!take(t, ',') && !is_next(t, ']'))
            return damaged(st);
    }
    return MR_OK;
}

static mr_code read_descr(text *t, mr__npy_type *out, mr_status *st)
{
    char code[64];
    mr__npy_field f = {.items = 1, .values = 1};
    out->structured = is_next(t, '[');
    if (out->structured)
        return read_fields(t, "", 0, out, st);
    if (!read_string(t, code, sizeof code))
        return damaged(st);
    MR_TRY(read_code(code, "", &f, st));
    out->item = f.stored;
    return add_field(out, "", &f, st);
}

/* Gives the fields the axes of the array after the first. */
static mr_code lay_out(mr__npy_type *t, mr_status *st)
{
    size_t items = 1;
    if (t->rank == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the array is one value, without an axis whose entries were the elements");
    t->count = t->shape[0];
    for (int d = 1; d < t->rank; d++)
        if (__builtin_mul_overflow(items, (size_t)t->shape[d], &items))
            return too_large(st);
    int64_t all;
    if (__builtin_mul_overflow(items, t->item, &t->entry) || t->entry > (size_t)1 << 40 ||
        __builtin_mul_overflow((int64_t)t->entry, t->count, &all))
        return too_large(st);
    for (size_t i = 0; i < t->n; i++) {
        mr__npy_field *f = &t->fields[i];
        int more = t->rank - 1;
        if (f->rank + more > MR_MAX_RANK)
            return mr_fail(st, MR_INVALID_ARGUMENT, "the array has more than %d axes",
                           MR_MAX_RANK + 1);
        memmove(f->shape + more, f->shape, (size_t)f->rank * sizeof *f->shape);
        memcpy(f->shape, t->shape + 1, (size_t)more * sizeof *f->shape);
        f->rank += more;
        f->items = t->structured ? items : 1;
        f->values = t->structured ? f->values : items;
        f->stride = t->item;
    }
    return t->n ? MR_OK : mr_fail(st, MR_INVALID_ARGUMENT, "the array has no fields");
}

static mr_code read_head(text *t, mr__npy_type *out, mr_status *st)
{
    bool has_descr = false, has_order = false, has_shape = false;
    char key[32];
    if (!take(t, '{'))
        return damaged(st);
    while (!take(t, '}')) {
        if (!read_string(t, key, sizeof key) || !take(t, ':'))
            return damaged(st);
        if (strcmp(key, "descr") == 0 && !has_descr) {
            has_descr = true;
            MR_TRY(read_descr(t, out, st));
        } else if (strcmp(key, "fortran_order") == 0) {
            has_order = true;
            out->fortran = take(t, 'T');
            size_t n = out->fortran ? 3 : 5; /* of "True" without its T, of "False" */
            (void)is_next(t, 'F');
            while (t->at < t->end && *t->at == ' ')
                t->at++;
            if ((size_t)(t->end - t->at) < n ||
                memcmp(t->at, out->fortran ? "rue" : "False", n) != 0)
                return damaged(st);
            t->at += n;
        } else if (strcmp(key, "shape") == 0) {
            has_shape = true;
            if (!read_shape(t, MR_MAX_RANK + 1, &out->rank, out->shape))
                return damaged(st);
        } else
            return damaged(st);
        if (!take(t, ',') && !is_next(t, '}'))
            return damaged(st);
    }
    return has_descr && has_order && has_shape ? lay_out(out, st) : damaged(st);
}

mr_code mr__npy_head_read(const uint8_t *p, size_t size, mr__npy_type *out, mr_status *st)
{
    size_t before = p[6] == 1 ? 10 : 12;
    text t = {(const char *)p + before, (const char *)p + size};
    *out = (mr__npy_type){0};
    mr_code rc = read_head(&t, out, st);
    if (rc != MR_OK)
        mr__npy_type_reset(out);
    return rc;
}

mr_code mr__npy_type_spec(const mr__npy_type *t, mr_spec **out, mr_status *st)
{
    const mr__npy_field *f = t->fields;
    if (t->n == 1 && !*f->name)
        return mr__inferred(mr_spec_tensor(f->dtype, f->rank, f->shape), out, st);
    const char **names = mr_calloc(t->n, sizeof *names), *twice = NULL;
    mr_spec **parts = mr_calloc(t->n, sizeof *parts);
    mr_code rc = names && parts ? MR_OK : mr_fail_memory(st, t->n * sizeof *names, "a type");
    for (size_t i = 0; i < t->n && rc == MR_OK; i++) {
        names[i] = f[i].name;
        if (!(parts[i] = mr_spec_tensor(f[i].dtype, f[i].rank, f[i].shape)))
            rc = mr_fail_memory(st, sizeof(mr_leaf), "a type");
    }
    if (rc == MR_OK)
        rc = mr__name_twice((char *const *)(uintptr_t)names, t->n, &twice, st);
    if (rc == MR_OK && twice)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "two arrays are called '%.200s'", twice);
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_record(names, parts, t->n), out, st);
    else
        for (size_t i = 0; parts && i < t->n; i++)
            mr_spec_unref(parts[i]);
    mr_free(names);
    mr_free(parts);
    return rc;
}
