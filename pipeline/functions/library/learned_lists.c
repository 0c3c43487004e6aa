/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/learned_lists.h"

#include <jansson.h>
#include <math.h>

#include "pipeline/memory/alloc.h"

static mr_code read_list(const json_t *root, const char *key, mr_floats *out, mr_status *st)
{
    const json_t *list = json_object_get(root, key);
    size_t n = json_array_size(list);
    if (n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "it has no list \"%s\"", key);
    if (!(out->v = mr_calloc(n, sizeof *out->v)))
        return mr_fail_memory(st, n * sizeof *out->v, key);
    for (out->n = 0; out->n < n; out->n++) {
        const json_t *v = json_array_get(list, out->n);
        if (!json_is_number(v))
            return mr_fail(st, MR_INVALID_ARGUMENT, "value %zu of \"%s\" is not a number", out->n,
                           key);
        out->v[out->n] = json_number_value(v);
    }
    return MR_OK;
}

/* The lists of n keys; the caller frees them. */
static mr_code read_lists(const void *json, size_t size, const char *const *keys, mr_floats *lists,
                          size_t n, mr_status *st)
{
    json_error_t error;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    mr_code rc = root ? MR_OK
                      : mr_fail(st, MR_INVALID_ARGUMENT, "it is not JSON: %s (line %d)", error.text,
                                error.line);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = read_list(root, keys[i], &lists[i], st);
    json_decref(root);
    return rc;
}

mr_code mr_learned_moments(const void *json, size_t size, mr_floats *mean, mr_floats *variance,
                           mr_status *st)
{
    static const char *const keys[] = {"mean", "variance"};
    mr_floats lists[2] = {{0}};
    mr_code rc = read_lists(json, size, keys, lists, 2, st);
    for (size_t i = 0; i < lists[1].n && rc == MR_OK; i++)
        if (!(lists[1].v[i] >= 0))
            rc = mr_fail(st, MR_INVALID_ARGUMENT, "variance %zu is %g; it must be at least 0", i,
                         lists[1].v[i]);
    if (rc == MR_OK && lists[0].n != lists[1].n)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the file has %zu means, but %zu variances",
                     lists[0].n, lists[1].n);
    if (rc != MR_OK) {
        mr_free(lists[0].v);
        mr_free(lists[1].v);
        return rc;
    }
    *mean = lists[0];
    *variance = lists[1];
    return MR_OK;
}

mr_code mr_learned_boundaries_check(const mr_floats *b, mr_status *st)
{
    for (size_t i = 0; i < b->n; i++)
        if (!isfinite(b->v[i]) || (i > 0 && !(b->v[i - 1] < b->v[i])))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "boundaries must be finite and ascend; boundary %zu is %g", i, b->v[i]);
    return MR_OK;
}

mr_code mr_learned_boundaries(const void *json, size_t size, mr_floats *out, mr_status *st)
{
    static const char *const key = "boundaries";
    mr_floats b = {0};
    mr_code rc = read_lists(json, size, &key, &b, 1, st);
    if (rc == MR_OK)
        rc = mr_learned_boundaries_check(&b, st);
    if (rc == MR_OK)
        *out = b;
    else
        mr_free(b.v);
    return rc;
}
