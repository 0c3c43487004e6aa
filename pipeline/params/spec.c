/* SPDX-License-Identifier: Apache-2.0 */
/* A spec is one allocation:
 *
 *     [struct mr_spec][children x n][first leaf of child x n][names x n][bytes of the names]
 *
 * Leaves are found by descending along `first`, so that a deep tree needs no table of leaves at
 * each level; for the same reason, the paths of the leaves are built on demand. Recursion follows
 * the depth of the tree, which dataset.c limits to MR__SPEC_MAX_DEPTH. */
#include "pipeline/params/spec.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/object.h"
#include "pipeline/params/infer.h"

struct mr_spec {
    mr__object obj;
    mr_spec_kind kind;
    int depth;
    size_t n_leaves;
    mr_leaf leaf; /* LEAF; .element is a reference */
    size_t n;
    mr_spec **children;
    size_t *first;
    char **names;                       /* RECORD, else NULL */
    _Atomic(const char *const *) paths; /* one allocation; NULL until requested */
};

static void destroy(mr__object *o)
{
    mr_spec *s = (mr_spec *)o;
    for (size_t i = 0; i < s->n; i++)
        mr_spec_unref(s->children[i]);
    mr_spec_unref(s->leaf.element);
    /* Relaxed: the last unref synchronised with every thread that had a reference. */
    mr_free((void *)(uintptr_t)atomic_load_explicit(&s->paths, memory_order_relaxed));
    mr_free(s);
}

mr_spec *mr_spec_ref(const mr_spec *s)
{
    mr_spec *own = (mr_spec *)(uintptr_t)s;
    if (own)
        mr__object_ref(&own->obj);
    return own;
}

void mr_spec_unref(const mr_spec *s)
{
    mr__object_unref((mr__object *)(uintptr_t)s);
}

mr_spec *mr_spec_of_leaf(const mr_leaf *leaf)
{
    assert(leaf->rank <= MR_MAX_RANK && "rank within MR_MAX_RANK");
    mr_spec *s = mr_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    mr__object_init(&s->obj, destroy);
    s->kind = MR_SPEC_LEAF;
    s->n_leaves = 1;
    s->leaf = *leaf;
    mr_spec_ref(leaf->element);
    s->depth = 1 + (leaf->element ? leaf->element->depth : 0);
    return s;
}

mr_spec *mr_spec_tensor(mr_dtype t, int rank, const int64_t *shape)
{
    mr_leaf leaf = {.dtype = t, .rank = (int8_t)rank};
    if (rank > 0)
        memcpy(leaf.shape, shape, (size_t)rank * sizeof *shape);
    return mr_spec_of_leaf(&leaf);
}

mr_spec *mr_spec_scalar(mr_dtype t)
{
    return mr_spec_tensor(t, 0, NULL);
}

mr_spec *mr_spec_dataset(mr_spec *element)
{
    if (!element)
        return NULL;
    mr_spec *s = mr_spec_of_leaf(&(mr_leaf){.dtype = MR_DATASET, .element = element});
    mr_spec_unref(element);
    return s;
}

static void unref_all(mr_spec *const *children, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mr_spec_unref(children[i]);
}

/* Takes the children over only on success. */
static mr_spec *new_tree(mr_spec_kind kind, mr_spec *const *children, size_t n,
                         const char *const *names)
{
    size_t text = 0;
    for (size_t i = 0; i < n; i++) {
        if (!children[i])
            return NULL;
        text += names ? strlen(names[i]) + 1 : 0;
    }
    mr_spec *s = mr_calloc(
        1, sizeof *s + n * (sizeof *s->children + sizeof *s->first + sizeof *s->names) + text);
    if (!s)
        return NULL;
    mr__object_init(&s->obj, destroy);
    s->kind = kind;
    s->n = n;
    s->children = (mr_spec **)(s + 1);
    s->first = (size_t *)(s->children + n);
    s->names = names ? (char **)(s->first + n) : NULL;
    char *at = (char *)((char **)(s->first + n) + n);
    for (size_t i = 0; i < n; i++) {
        s->children[i] = children[i];
        s->first[i] = s->n_leaves;
        s->n_leaves += children[i]->n_leaves;
        if (children[i]->depth > s->depth)
            s->depth = children[i]->depth;
        if (names) {
            s->names[i] = at;
            at = stpcpy(at, names[i]) + 1;
        }
    }
    s->depth++;
    return s;
}

mr_spec *mr_spec_tuple(mr_spec *const *children, size_t n)
{
    if (n == 1)
        return children[0];
    mr_spec *s = new_tree(MR_SPEC_TUPLE, children, n, NULL);
    if (!s)
        unref_all(children, n);
    return s;
}

struct named {
    const char *name;
    mr_spec *child;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

mr_spec *mr_spec_record(const char *const *names, mr_spec *const *children, size_t n)
{
    size_t room = n ? n : 1;
    struct named *sorted = mr_calloc(room, sizeof *sorted);
    const char **keys = mr_calloc(room, sizeof *keys);
    mr_spec **kids = mr_calloc(room, sizeof *kids);
    mr_spec *s = NULL;
    if (sorted && keys && kids) {
        for (size_t i = 0; i < n; i++)
            sorted[i] = (struct named){names[i], children[i]};
        qsort(sorted, n, sizeof *sorted, compare_names);
        for (size_t i = 0; i < n; i++) {
            keys[i] = sorted[i].name;
            kids[i] = sorted[i].child;
        }
        s = new_tree(MR_SPEC_RECORD, kids, n, keys);
    }
    if (!s)
        unref_all(children, n);
    mr_free(kids);
    mr_free(keys);
    mr_free(sorted);
    return s;
}

mr_code mr__name_twice(char *const *names, size_t n, const char **twice, mr_status *st)
{
    struct named *sorted = mr_calloc(n ? n : 1, sizeof *sorted);
    if (!sorted)
        return mr_fail_memory(st, n * sizeof *sorted, "the names of components");
    for (size_t i = 0; i < n; i++)
        sorted[i].name = names[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    *twice = NULL;
    for (size_t i = 1; i < n && !*twice; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            *twice = sorted[i].name;
    mr_free(sorted);
    return MR_OK;
}

mr_spec *mr_spec_with_leaves(const mr_spec *s, const mr_leaf *leaves)
{
    if (s->kind == MR_SPEC_LEAF)
        return mr_spec_of_leaf(leaves);
    mr_spec **kids = mr_calloc(s->n ? s->n : 1, sizeof *kids);
    if (!kids)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        kids[i] = mr_spec_with_leaves(s->children[i], leaves + s->first[i]);
    mr_spec *out = new_tree(s->kind, kids, s->n, (const char *const *)s->names);
    if (!out)
        unref_all(kids, s->n);
    mr_free(kids);
    return out;
}

mr_spec_kind mr_spec_kind_of(const mr_spec *s)
{
    return s->kind;
}

size_t mr_spec_n_children(const mr_spec *s)
{
    return s->n;
}

const mr_spec *mr_spec_child(const mr_spec *s, size_t i)
{
    return s->children[i];
}

const char *mr_spec_child_name(const mr_spec *s, size_t i)
{
    return s->names ? s->names[i] : NULL;
}

int64_t mr_spec_find(const mr_spec *s, const char *name)
{
    size_t lo = 0, hi = s->names ? s->n : 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(s->names[mid], name);
        if (order == 0)
            return (int64_t)mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

size_t mr_spec_n_leaves(const mr_spec *s)
{
    return s->n_leaves;
}

/* The child that contains leaf i: the last one whose first leaf is not after i. */
static size_t child_of_leaf(const mr_spec *s, size_t i)
{
    size_t lo = 0, hi = s->n;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->first[mid] <= i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

const mr_leaf *mr_spec_leaf(const mr_spec *s, size_t i)
{
    assert(i < s->n_leaves && "a leaf of this spec");
    while (s->kind != MR_SPEC_LEAF) {
        size_t c = child_of_leaf(s, i);
        i -= s->first[c];
        s = s->children[c];
    }
    return &s->leaf;
}

size_t mr_spec_first_leaf(const mr_spec *s, size_t child)
{
    return s->first[child];
}

mr_code mr__inferred(mr_spec *spec, mr_spec **out, mr_status *st)
{
    if (!spec)
        return mr_fail_memory(st, sizeof(mr_leaf), "a spec");
    *out = spec;
    return MR_OK;
}

size_t mr__row_bytes(const mr_spec *spec)
{
    size_t all = 0;
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        size_t bytes = mr_dtype_size(leaf->dtype);
        for (int d = 0; d < leaf->rank; d++)
            if (leaf->shape[d] < 0 || __builtin_mul_overflow(bytes, (size_t)leaf->shape[d], &bytes))
                return 0;
        if (leaf->rank < 0 || leaf->dtype == MR_STRING || __builtin_add_overflow(all, bytes, &all))
            return 0;
    }
    return all;
}

mr_code mr__spec_check(const mr_spec *s, mr_status *st)
{
    if (s->depth > MR__SPEC_MAX_DEPTH)
        return mr_fail(st, MR_INVALID_ARGUMENT, "its elements would nest more than %d levels deep",
                       MR__SPEC_MAX_DEPTH);
    if (s->n_leaves > MR__SPEC_MAX_LEAVES)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "its elements would have %zu components, but at most %d are supported; "
                       "join components of one type into tensors",
                       s->n_leaves, MR__SPEC_MAX_LEAVES);
    return MR_OK;
}

/* Walks to leaf i and writes its path; returns the path's length. buf may be NULL. */
static size_t leaf_path(const mr_spec *s, size_t i, char *buf)
{
    size_t length = 0;
    while (s->kind != MR_SPEC_LEAF) {
        size_t c = child_of_leaf(s, i);
        char number[24];
        const char *part = number;
        if (s->names)
            part = s->names[c];
        else
            snprintf(number, sizeof number, "%zu", c);
        size_t n = strlen(part);
        if (length) {
            if (buf)
                buf[length] = '/';
            length++;
        }
        if (buf)
            memcpy(buf + length, part, n);
        length += n;
        i -= s->first[c];
        s = s->children[c];
    }
    if (buf)
        buf[length] = '\0';
    return length;
}

const char *const *mr_spec_leaf_names(const mr_spec *s)
{
    mr_spec *own = (mr_spec *)(uintptr_t)s;
    /* Acquire pairs with the release below: the paths are complete. */
    const char *const *paths = atomic_load_explicit(&own->paths, memory_order_acquire);
    if (paths)
        return paths;
    size_t bytes = (s->n_leaves + 1) * sizeof(char *);
    for (size_t i = 0; i < s->n_leaves; i++)
        bytes += leaf_path(s, i, NULL) + 1;
    const char **made = mr_malloc(bytes);
    if (!made)
        return NULL;
    char *at = (char *)(made + s->n_leaves + 1);
    for (size_t i = 0; i < s->n_leaves; i++) {
        made[i] = at;
        at += leaf_path(s, i, at) + 1;
    }
    made[s->n_leaves] = NULL;
    const char *const *expected = NULL;
    if (atomic_compare_exchange_strong_explicit(&own->paths, &expected, made, memory_order_acq_rel,
                                                memory_order_acquire))
        return made;
    mr_free(made);
    return expected;
}

static bool same_leaf_types(const mr_leaf *a, const mr_leaf *b)
{
    if (a->dtype != b->dtype || a->ragged != b->ragged)
        return false;
    return a->dtype != MR_DATASET || mr_spec_same_types(a->element, b->element);
}

static bool same_tree(const mr_spec *a, const mr_spec *b)
{
    if (a->kind != b->kind || a->n != b->n || a->n_leaves != b->n_leaves)
        return false;
    for (size_t i = 0; a->names && i < a->n; i++)
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    return true;
}

/* The same tree, whose leaves compare as true. */
static bool compare(const mr_spec *a, const mr_spec *b,
                    bool (*leaves)(const mr_leaf *a, const mr_leaf *b))
{
    if (a == b)
        return true;
    if (!same_tree(a, b))
        return false;
    if (a->kind == MR_SPEC_LEAF)
        return leaves(&a->leaf, &b->leaf);
    for (size_t i = 0; i < a->n; i++)
        if (!compare(a->children[i], b->children[i], leaves))
            return false;
    return true;
}

bool mr_spec_same_types(const mr_spec *a, const mr_spec *b)
{
    return compare(a, b, same_leaf_types);
}

static bool leaf_equal(const mr_leaf *a, const mr_leaf *b)
{
    if (a->dtype != b->dtype || a->ragged != b->ragged || a->rank != b->rank)
        return false;
    if (a->rank > 0 && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0)
        return false;
    return a->dtype != MR_DATASET || mr_spec_equal(a->element, b->element);
}

bool mr_spec_equal(const mr_spec *a, const mr_spec *b)
{
    return compare(a, b, leaf_equal);
}

static bool leaf_covers(const mr_leaf *general, const mr_leaf *special)
{
    if (general->dtype != special->dtype || general->ragged != special->ragged ||
        (general->rank >= 0 && general->rank != special->rank))
        return false;
    for (int i = 0; i < general->rank; i++)
        if (general->shape[i] >= 0 && general->shape[i] != special->shape[i])
            return false;
    return general->dtype != MR_DATASET || mr__spec_covers(general->element, special->element);
}

bool mr__spec_covers(const mr_spec *general, const mr_spec *special)
{
    return compare(general, special, leaf_covers);
}

size_t mr__spec_shapes_count(const mr_spec *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_leaves; i++) {
        const mr_leaf *leaf = mr_spec_leaf(s, i);
        n += 1 + (size_t)(leaf->rank > 0 ? leaf->rank : 0);
        n += leaf->element ? mr__spec_shapes_count(leaf->element) : 0;
    }
    return n;
}

int64_t *mr__spec_shapes(const mr_spec *s, int64_t *to)
{
    for (size_t i = 0; i < s->n_leaves; i++) {
        const mr_leaf *leaf = mr_spec_leaf(s, i);
        *to++ = leaf->rank;
        for (int d = 0; d < leaf->rank; d++)
            *to++ = leaf->shape[d];
        if (leaf->element)
            to = mr__spec_shapes(leaf->element, to);
    }
    return to;
}

static mr_code no_shapes(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "the shapes do not match the elements");
}

/* Reads the rank and dimensions of one leaf. */
static mr_code read_shape(const int64_t **v, size_t *n, mr_leaf *leaf, mr_status *st)
{
    if (*n == 0 || **v < -1 || **v > MR_MAX_RANK || (**v > 0 && (uint64_t) * *v >= *n))
        return no_shapes(st);
    leaf->rank = (int8_t) * *v;
    int axes = leaf->rank > 0 ? leaf->rank : 0;
    for (int d = 0; d < axes; d++)
        if ((leaf->shape[d] = (*v)[1 + d]) < -1)
            return no_shapes(st);
    *v += 1 + axes;
    *n -= 1 + (size_t)axes;
    return MR_OK;
}

mr_code mr__spec_with_shapes(const mr_spec *s, const int64_t **v, size_t *n, mr_spec **out,
                             mr_status *st)
{
    size_t bytes = (s->n_leaves + 1) * sizeof(mr_leaf), made = 0;
    mr_leaf *leaves = mr_calloc(1, bytes);
    if (!leaves)
        return mr_fail_memory(st, bytes, "a spec");
    mr_code rc = MR_OK;
    for (; made < s->n_leaves && rc == MR_OK; made++) {
        mr_leaf *leaf = &leaves[made];
        mr_spec *element = NULL;
        *leaf = *mr_spec_leaf(s, made);
        rc = read_shape(v, n, leaf, st);
        if (rc == MR_OK && leaf->element)
            rc = mr__spec_with_shapes(leaf->element, v, n, &element, st);
        leaf->element = element;
    }
    mr_spec *all = NULL;
    if (rc == MR_OK && !(all = mr_spec_with_leaves(s, leaves)))
        rc = mr_fail_memory(st, bytes, "a spec");
    if (rc == MR_OK && !mr__spec_covers(all, s))
        rc = no_shapes(st);
    for (size_t i = 0; i < made; i++)
        mr_spec_unref(leaves[i].element);
    mr_free(leaves);
    if (rc == MR_OK)
        *out = all;
    else
        mr_spec_unref(all);
    return rc;
}

static mr_spec *merge_leaves(const mr_leaf *a, const mr_leaf *b)
{
    mr_leaf leaf = *a;
    if (a->rank != b->rank)
        leaf.rank = -1;
    for (int i = 0; i < leaf.rank; i++)
        if (a->shape[i] != b->shape[i])
            leaf.shape[i] = -1;
    if (a->dtype != MR_DATASET)
        return mr_spec_of_leaf(&leaf);
    mr_spec *element = mr_spec_merge(a->element, b->element);
    if (!element)
        return NULL;
    leaf.element = element;
    mr_spec *s = mr_spec_of_leaf(&leaf);
    mr_spec_unref(element);
    return s;
}

mr_spec *mr_spec_merge(const mr_spec *a, const mr_spec *b)
{
    assert(same_tree(a, b) && "specs of the same types");
    if (a == b)
        return mr_spec_ref(a);
    if (a->kind == MR_SPEC_LEAF)
        return merge_leaves(&a->leaf, &b->leaf);
    mr_spec **kids = mr_calloc(a->n ? a->n : 1, sizeof *kids);
    if (!kids)
        return NULL;
    for (size_t i = 0; i < a->n; i++)
        kids[i] = mr_spec_merge(a->children[i], b->children[i]);
    mr_spec *out = new_tree(a->kind, kids, a->n, (const char *const *)a->names);
    if (!out)
        unref_all(kids, a->n);
    mr_free(kids);
    return out;
}

bool mr_leaf_admits(const mr_leaf *leaf, int rank, const int64_t *shape)
{
    if (leaf->rank < 0)
        return true;
    if (leaf->rank != rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (leaf->shape[i] >= 0 && shape[i] >= 0 && leaf->shape[i] != shape[i])
            return false;
    return true;
}

/* ---- text ---- */

struct writer {
    char *buf;
    size_t size, length;
};

static void put(struct writer *w, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++, w->length++)
        if (w->length + 1 < w->size)
            w->buf[w->length] = s[i];
}

static void puts_to(struct writer *w, const char *s)
{
    put(w, s, strlen(s));
}

static void put_shape(struct writer *w, const mr_leaf *leaf)
{
    if (leaf->rank < 0) {
        puts_to(w, "[...]");
        return;
    }
    puts_to(w, "[");
    for (int i = 0; i < leaf->rank; i++) {
        char number[24] = "?";
        if (leaf->shape[i] >= 0)
            snprintf(number, sizeof number, "%" PRId64, leaf->shape[i]);
        else if (leaf->ragged && i == 1)
            strcpy(number, "ragged");
        if (i)
            puts_to(w, ", ");
        puts_to(w, number);
    }
    puts_to(w, "]");
}

static void put_name(struct writer *w, const char *name)
{
    bool plain = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *p = name; *p; p++)
        plain = plain && (isalnum((unsigned char)*p) || *p == '_');
    puts_to(w, plain ? "" : "\"");
    puts_to(w, name);
    puts_to(w, plain ? "" : "\"");
}

static void put_spec(struct writer *w, const mr_spec *s)
{
    if (s->kind == MR_SPEC_LEAF) {
        if (s->leaf.dtype == MR_DATASET) {
            puts_to(w, "dataset(");
            put_spec(w, s->leaf.element);
            puts_to(w, ")");
            return;
        }
        puts_to(w, mr_dtype_name(s->leaf.dtype));
        put_shape(w, &s->leaf);
        return;
    }
    puts_to(w, s->kind == MR_SPEC_TUPLE ? "(" : "{");
    for (size_t i = 0; i < s->n; i++) {
        if (i)
            puts_to(w, ", ");
        if (s->names) {
            put_name(w, s->names[i]);
            puts_to(w, ": ");
        }
        put_spec(w, s->children[i]);
    }
    puts_to(w, s->kind == MR_SPEC_TUPLE ? ")" : "}");
}

static size_t finish(struct writer *w)
{
    if (w->size)
        w->buf[w->length < w->size ? w->length : w->size - 1] = '\0';
    return w->length;
}

size_t mr_spec_format(const mr_spec *s, char *buf, size_t size)
{
    struct writer w = {.buf = buf, .size = size};
    put_spec(&w, s);
    return finish(&w);
}

size_t mr_shape_format(int rank, const int64_t *shape, char *buf, size_t size)
{
    struct writer w = {.buf = buf, .size = size};
    mr_leaf leaf = {.rank = (int8_t)rank};
    if (rank > 0)
        memcpy(leaf.shape, shape, (size_t)rank * sizeof *shape);
    put_shape(&w, &leaf);
    return finish(&w);
}
