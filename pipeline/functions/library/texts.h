/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_TEXTS_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_TEXTS_H
/* Columns of strings made by functions, and characters of UTF-8. Private to functions/.
 *
 *     mr__texts t;
 *     MR_TRY(mr__texts_start(&t, x->rank, x->shape, x->rows, st));
 *     for each value: mr__texts_put(&t, ..) as often as needed, then mr__texts_next(&t);
 *     return mr__texts_finish(&t, rc, out, st);
 *
 * The bytes of a whole column are in one piece of memory, which avoids an allocation per string.
 *
 * thread   one at a time per object */
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

typedef struct mr__texts {
    mr_array out;
    char *v;
    size_t n, capacity; /* bytes */
    size_t begin;       /* of the current string */
    size_t i;           /* its index in out */
} mr__texts;

mr_code mr__texts_start(mr__texts *t, int rank, const int64_t *shape, size_t rows, mr_status *st);
/* Reserves n more bytes, so that putting them cannot fail. */
mr_code mr__texts_reserve(mr__texts *t, size_t n, mr_status *st);
void mr__texts_next(mr__texts *t);
/* *out = the column; if rc is a failure, frees it and returns rc. */
mr_code mr__texts_finish(mr__texts *t, mr_code rc, mr_array *out, mr_status *st);

static inline mr_code mr__texts_put(mr__texts *t, const char *s, size_t n, mr_status *st)
{
    if (n > t->capacity - t->n)
        MR_TRY(mr__texts_reserve(t, n, st));
    if (n)
        memcpy(t->v + t->n, s, n);
    t->n += n;
    return MR_OK;
}

/* The number of characters of s; a byte that is not part of one counts as one. */
size_t mr__utf8_count(const mr_bytes *s);
/* The offset of character i of s, or the end of s. */
size_t mr__utf8_offset(const mr_bytes *s, size_t i);

/* The option `unit` of struct T. */
extern const char *const mr__units[];
#define MR__UNIT_OPTION(T)                                                                         \
    {                                                                                              \
        .name = "unit", .doc = "The unit: \"byte\", or \"char\" for UTF-8 characters.",            \
        .type = MR_PT_STR, .def.s = "byte", .names = mr__units, .at = offsetof(T, unit)            \
    }
static inline bool mr__unit_is_char(const char *unit)
{
    return unit[0] == 'c';
}
/* White space as defined for Python's bytes. */
static inline bool mr__is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The hash of hash() and of lookup's buckets: XXH3 of n bytes, 64 bits, seed 0. It must never
 * change and is the same on every machine. */
uint64_t mr__string_hash(const void *p, size_t n);
#endif
