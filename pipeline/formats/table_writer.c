/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/table_writer.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/utf8.h"

void mr__table_writer_close(mr__table_writer *w)
{
    if (w)
        w->class_->close(w);
}

mr_code mr__table_add(mr__table_bytes *b, const void *data, size_t n, size_t most, const char *what,
                      mr_status *st)
{
    MR_TRY(mr_grow(&b->v, &b->capacity, b->n + n, 1, most, what, st));
    if (n)
        memcpy((char *)b->v + b->n, data, n);
    b->n += n;
    return MR_OK;
}

/* The write position never overtakes the read position. */
void mr__table_pack_bits(mr__table_bytes *b)
{
    uint8_t *v = b->v;
    size_t n = b->n;
    for (size_t i = 0; i < n; i++) {
        uint8_t bit = (uint8_t)((v[i] != 0) << (i % 8));
        v[i / 8] = (uint8_t)(i % 8 ? v[i / 8] | bit : bit);
    }
    b->n = n / 8 + (n % 8 != 0);
}

void mr__table_bytes_reset(mr__table_bytes *b)
{
    mr_free(b->v);
    *b = (mr__table_bytes){0};
}

const char *mr__table_child(const mr_spec *s, size_t i, char number[MR__TABLE_NUMBER])
{
    const char *own = mr_spec_child_name(s, i);
    if (own)
        return own;
    snprintf(number, MR__TABLE_NUMBER, "%zu", i);
    return number;
}

static mr_code name_leaf(mr__table_column *c, const char *path, size_t size, size_t n_parts,
                         mr_status *st)
{
    c->n_parts = n_parts;
    c->path = mr_memdup(path, size);
    c->name = mr_memdup(path, size);
    if (!c->path || !c->name)
        return mr_fail_memory(st, size, "a column's name");
    for (size_t i = 0; i + 1 < size; i++)
        if (!c->name[i])
            c->name[i] = '.';
    return MR_OK;
}

/* Adds the leaves of s, whose path has `size` bytes, after the *n leaves before them. */
static mr_code name_leaves(const mr_spec *s, const char *path, size_t size, size_t n_parts,
                           mr__table_column *c, size_t *n, mr_status *st)
{
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(s) == MR_SPEC_LEAF)
        return name_leaf(&c[(*n)++], path, size, n_parts, st);
    if (mr_spec_n_children(s) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "component '%.200s' has no components",
                       size ? path : "");
    for (size_t i = 0; i < mr_spec_n_children(s) && rc == MR_OK; i++) {
        char number[MR__TABLE_NUMBER];
        const char *own = mr__table_child(s, i, number);
        size_t more = strlen(own) + 1;
        char *child = mr_malloc(size + more);
        if (!child)
            return mr_fail_memory(st, size + more, "a column's name");
        if (size)
            memcpy(child, path, size);
        memcpy(child + size, own, more);
        rc = name_leaves(mr_spec_child(s, i), child, size + more, n_parts + 1, c, n, st);
        mr_free(child);
    }
    return rc;
}

static mr_code describe(mr__table_column *c, const char *format, const mr_leaf *leaf,
                        const mr_array *first, mr_status *st)
{
    bool known = leaf->rank >= 0;
    if (leaf->dtype == MR_DATASET || leaf->dtype == MR_BFLOAT16)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component '%.200s' is %s, for which %s has no type%s", c->name,
                       mr_dtype_name(leaf->dtype), format,
                       leaf->dtype == MR_BFLOAT16 ? "; cast it to float32" : "");
    if (!mr__is_utf8(c->name, strlen(c->name)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component '%.200s' has a name that is not UTF-8, which the columns of %s "
                       "files have; give it another",
                       c->name, format);
    c->dtype = leaf->dtype;
    c->rank = known ? leaf->rank : first ? first->rank : 0;
    for (int k = 0; k < c->rank; k++) {
        bool fixed =
            known && leaf->shape[k] > 0 && leaf->shape[k] <= INT32_MAX && !(leaf->ragged && k == 1);
        c->shape[k] = fixed ? leaf->shape[k] : -1;
    }
    return MR_OK;
}

mr_code mr__table_columns(const mr__table_opts *o, const char *format, mr__table_column **out,
                          size_t *n, mr_status *st)
{
    size_t all = mr_spec_n_leaves(o->spec), named = 0;
    if (all == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "elements without components have no columns");
    mr__table_column *c = mr_calloc(all, sizeof *c);
    bool alone = mr_spec_kind_of(o->spec) == MR_SPEC_LEAF;
    mr_code rc = !c      ? mr_fail_memory(st, all * sizeof *c, "columns")
                 : alone ? name_leaf(c, "value", sizeof "value", 1, st)
                         : name_leaves(o->spec, NULL, 0, 0, c, &named, st);
    for (size_t i = 0; i < all && rc == MR_OK; i++)
        rc = describe(&c[i], format, mr_spec_leaf(o->spec, i),
                      o->first && o->first->rows ? &o->first->columns[i] : NULL, st);
    if (rc == MR_OK) {
        *out = c;
        *n = all;
    } else
        mr__table_columns_free(c, all);
    return rc;
}

void mr__table_columns_free(mr__table_column *c, size_t n)
{
    for (size_t i = 0; c && i < n; i++) {
        mr_free(c[i].name);
        mr_free(c[i].path);
    }
    mr_free(c);
}

mr_code mr__table_row(const mr__table_column *c, const char *format, const mr_array *a, size_t row,
                      mr_row *out, mr_status *st)
{
    bool ragged = a->storage == MR_RAGGED;
    if (a->dtype != c->dtype || !(ragged || a->storage == MR_DENSE || a->storage == MR_BYTES))
        return mr_fail(st, MR_INVALID_ARGUMENT, "component '%.200s' is %s, expected %s", c->name,
                       mr_dtype_name(a->dtype), mr_dtype_name(c->dtype));
    mr_row r = {NULL, mr_array_row_shape(a, row), NULL};
    if (ragged)
        r = ((const mr_row *)a->data)[row];
    else
        r.data = mr_array_at(a, row);
    bool fits = a->rank == c->rank && !(r.splits && c->shape[1] >= 0);
    for (int k = 0; k < c->rank && fits; k++)
        fits = c->shape[k] < 0 || c->shape[k] == r.shape[k];
    if (fits) {
        *out = r;
        return MR_OK;
    }
    char here[128], there[128];
    mr_shape_format(a->rank, r.shape, here, sizeof here);
    mr_shape_format(c->rank, c->shape, there, sizeof there);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "component '%.200s' has shape %s, expected %s: a column of %s files has one "
                   "number of axes",
                   c->name, here, there, format);
}

size_t mr__table_lists(const mr_row *r, int k)
{
    size_t n = 1;
    int from = 0;
    if (r->splits && k > 1) { /* of axes 0 and 1 together */
        n = (size_t)r->splits[r->shape[0]];
        from = 2;
    }
    for (int i = from; i < k; i++)
        n *= (size_t)r->shape[i];
    return n;
}
