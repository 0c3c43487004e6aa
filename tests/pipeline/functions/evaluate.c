/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/functions/evaluate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/params/literal.h"
#include "tests/harness.h"

typedef struct text {
    char *s;
    size_t n, size;
} text;

static void put(text *t, const char *s)
{
    int n = snprintf(t->s + t->n, t->size - t->n, "%s", s);
    t->n += (size_t)n;
    if (t->n >= t->size)
        mr_fail_test("the result is longer than %zu bytes", t->size);
}

static void put_value(text *t, mr_dtype type, const void *at)
{
    char buf[256];
    int64_t i = 0;
    switch (type) {
    case MR_FLOAT16:
    case MR_BFLOAT16:
        mr__literal_float(type == MR_FLOAT16 ? mr_half_to_float(*(const uint16_t *)at)
                                             : mr_bfloat_to_float(*(const uint16_t *)at),
                          buf);
        break;
    case MR_FLOAT32:
        mr__literal_float(*(const float *)at, buf);
        break;
    case MR_FLOAT64:
        mr__literal_double(*(const double *)at, buf);
        break;
    case MR_STRING: {
        const mr_bytes *b = at;
        snprintf(buf, sizeof buf, "\"%.*s\"", (int)b->size, b->data ? b->data : "");
        break;
    }
    case MR_BOOL:
        snprintf(buf, sizeof buf, "%s", *(const uint8_t *)at ? "true" : "false");
        break;
    case MR_DATASET:
        snprintf(buf, sizeof buf, "dataset");
        break;
    case MR_UINT64:
        snprintf(buf, sizeof buf, "%" PRIu64, *(const uint64_t *)at);
        break;
    default:
        mr__literal_int_at(&(mr_array){.dtype = type, .data = (void *)(uintptr_t)at, .rows = 1}, 0,
                           &i);
        snprintf(buf, sizeof buf, "%" PRId64, i);
        break;
    }
    put(t, buf);
}

static const char *put_axes(text *t, mr_dtype type, int rank, const int64_t *shape, const char *at)
{
    if (rank == 0) {
        put_value(t, type, at);
        return at + mr_dtype_size(type);
    }
    put(t, "[");
    for (int64_t i = 0; i < shape[0]; i++) {
        put(t, i ? ", " : "");
        at = put_axes(t, type, rank - 1, shape + 1, at);
    }
    put(t, "]");
    return at;
}

static void put_leaf(text *t, const mr_array *a, size_t row)
{
    if (a->storage != MR_RAGGED) {
        put_axes(t, a->dtype, a->rank, a->shape, mr_array_at(a, row));
        return;
    }
    const mr_row *r = (const mr_row *)a->data + row;
    if (!r->splits) {
        put_axes(t, a->dtype, a->rank, r->shape, r->data);
        return;
    }
    const char *at = r->data;
    put(t, "[");
    for (int64_t i = 0; i < r->shape[0]; i++) {
        int64_t shape[MR_MAX_RANK] = {r->splits[i + 1] - r->splits[i]};
        for (int d = 2; d < a->rank; d++)
            shape[d - 1] = r->shape[d];
        put(t, i ? ", " : "");
        at = put_axes(t, a->dtype, a->rank - 1, shape, at);
    }
    put(t, "]");
}

static void put_element(text *t, const mr_spec *spec, const mr_array *columns, size_t row)
{
    if (mr_spec_kind_of(spec) == MR_SPEC_LEAF) {
        put_leaf(t, columns, row);
        return;
    }
    bool record = mr_spec_kind_of(spec) == MR_SPEC_RECORD;
    put(t, record ? "{" : "(");
    for (size_t i = 0; i < mr_spec_n_children(spec); i++) {
        put(t, i ? ", " : "");
        if (record) {
            put(t, mr_spec_child_name(spec, i));
            put(t, ": ");
        }
        put_element(t, mr_spec_child(spec, i), columns + mr_spec_first_leaf(spec, i), row);
    }
    put(t, record ? "}" : ")");
}

void evaluate_print(const mr_spec *spec, const mr_block *b, const mr_row_errors *errors, char *buf,
                    size_t size)
{
    text t = {.s = buf, .size = size};
    size_t total = b->rows + errors->n, e = 0, good = 0;
    buf[0] = '\0';
    for (size_t r = 0; r < total; r++) {
        put(&t, r ? "; " : "");
        if (e < errors->n && errors->v[e].row == r) {
            put(&t, "!");
            put(&t, errors->v[e++].status.message);
        } else
            put_element(&t, spec, b->columns, good++);
    }
}

mr_code evaluate_integers(size_t from, size_t rows, mr_block *out, mr_status *st)
{
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, rows, st));
    for (size_t r = 0; r < rows; r++)
        ((int64_t *)out->columns[0].data)[r] = (int64_t)(from + r);
    out->rows = rows;
    return MR_OK;
}

mr_code evaluate_step(const char *function, const mr_spec *in_spec, const mr_block *in,
                      mr_spec **out_spec, mr_block *out, mr_row_errors *errors, mr_status *st)
{
    mr_fn *fn = mr_fn_text(function);
    if (!fn)
        return mr_fail_memory(st, 0, "a function");
    const mr_program *p = NULL;
    mr_code rc = mr_program_get(fn, in_spec, &p, st);
    mr_fn_unref(fn);
    if (rc == MR_OK)
        rc = mr_program_run(p, in, out, errors, st);
    if (rc == MR_OK)
        *out_spec = mr_spec_ref(mr_program_output(p));
    mr_program_unref(p);
    return rc;
}

/* What the leaves promise must hold of the columns. */
static void check_columns(const mr_spec *spec, const mr_block *b)
{
    for (size_t i = 0; b->rows && i < mr_spec_n_leaves(spec); i++) {
        mr_eq_u64(b->n_columns, mr_spec_n_leaves(spec));
        const mr_array *a = &b->columns[i];
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        mr_eq_str(mr_dtype_name(a->dtype), mr_dtype_name(leaf->dtype));
        mr_eq_u64(a->rows, b->rows);
        for (size_t r = 0; r < a->rows && leaf->dtype != MR_DATASET && !leaf->ragged; r++)
            mr_check(mr_leaf_admits(leaf, a->rank, mr_array_row_shape(a, r)));
    }
}

static const char *run_from(size_t from, size_t rows, const char *const *functions)
{
    static char buf[16384];
    mr_status st;
    mr_block in = MR_BLOCK_EMPTY;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_ok(evaluate_integers(from, rows, &in, &st), &st);
    bool done = false;
    for (size_t i = 0; functions[i] && !done; i++) {
        mr_block out = MR_BLOCK_EMPTY;
        mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
        mr_spec *out_spec = NULL;
        mr_code rc = evaluate_step(functions[i], spec, &in, &out_spec, &out, &errors, &st);
        bool of_none = rc < 0 && mr_status_is_of_no_element(&st) && st.sys_errno != ENOMEM;
        if (of_none || (rc == MR_INVALID_ARGUMENT && !out_spec)) {
            snprintf(buf, sizeof buf, "%s%s", of_none ? "!" : "refused: ", st.message);
            mr_row_errors_reset(&errors);
            mr_spec_unref(spec);
            mr_block_reset(&in);
            mr_block_reset(&out);
            return buf;
        }
        mr_ok(rc, &st);
        check_columns(out_spec, &out);
        done = !functions[i + 1] || out.rows == 0;
        if (done)
            evaluate_print(out_spec, &out, &errors, buf, sizeof buf);
        mr_row_errors_reset(&errors);
        mr_spec_unref(spec);
        spec = out_spec;
        mr_block_move(&in, &out);
        mr_block_reset(&out);
    }
    mr_spec_unref(spec);
    mr_block_reset(&in);
    return buf;
}

const char *evaluate_some(size_t rows, const char *const *functions)
{
    return run_from(0, rows, functions);
}

const char *evaluate_rows_alone(size_t rows, const char *const *functions)
{
    static char all[16384];
    all[0] = '\0';
    for (size_t r = 0; r < rows; r++) {
        const char *one = run_from(r, 1, functions);
        if (strncmp(one, "refused", 7) == 0)
            return one;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", r ? "; " : "", one);
    }
    return all;
}
