/* SPDX-License-Identifier: Apache-2.0 */
/* filter: keeps what a function says. Sequential or parallel, the work is done by streams/calls.c;
 * a block that is kept whole is passed on as it is. */
#include "pipeline/ops/apply.h"
#include "pipeline/columns/pick_rows.h"
#include "pipeline/functions/width.h"
#include "pipeline/streams/calls.h"
#include "pipeline/streams/predicate.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct params {
    mr_fn *fn;
    mr_filter_opts o;
};

#if defined(__x86_64__)
/* Of rows in sixteens. Nothing is written beyond them: no more are listed than were looked at. */
__attribute__((target("avx512f,avx512vl,avx512bw,popcnt"))) static size_t
list_sixteens(const uint8_t *keep, size_t rows, uint32_t *index)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t n = 0;
    for (size_t row = 0; row < rows; row += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(keep + row));
        __mmask16 kept = _mm_test_epi8_mask(v, v);
        __m512i all = _mm512_add_epi32(_mm512_set1_epi32((int)row), lane);
        _mm512_storeu_si512(index + n, _mm512_maskz_compress_epi32(kept, all));
        n += (size_t)__builtin_popcount(kept);
    }
    return n;
}
#endif

/* Lists the rows whose keep is not 0. */
static size_t list_kept(const uint8_t *keep, size_t rows, uint32_t *index)
{
    size_t n = 0, row = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
        row = rows - rows % 16;
        n = list_sixteens(keep, row, index);
    }
#endif
    for (; row < rows; row++) { /* without a branch */
        index[n] = (uint32_t)row;
        n += keep[row] != 0;
    }
    return n;
}

/* Lists the rows of `in` that are kept; an error then stands before the kept rows that follow it.
 * keep has an entry for each row without an error. */
static size_t choose(const uint8_t *keep, size_t rows, mr_row_errors *errors, uint32_t *index)
{
    size_t e = 0, first = errors->n ? errors->v[0].row : rows;
    size_t n = list_kept(keep, first, index);
    for (size_t row = first; row < rows; row++) {
        if (e < errors->n && errors->v[e].row == row) {
            errors->v[e].row = n + e;
            e++;
            continue;
        }
        index[n] = (uint32_t)row;
        n += keep[row - e] != 0;
    }
    return n;
}

static mr_code apply(const mr_program *program, mr_block *in, mr_block *out, mr_row_errors *errors,
                     size_t *bytes, mr_status *st)
{
    mr_block verdict = MR_BLOCK_EMPTY;
    mr_buffer *index = NULL;
    mr_code rc = mr__program_run_measured(program, in, &verdict, errors, bytes, st);
    if (rc == MR_OK)
        rc = mr__predicate_check_verdict("filter", &verdict, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&index, in->rows * sizeof(uint32_t), st);
    if (rc == MR_OK) {
        const uint8_t *keep = verdict.rows ? verdict.columns[0].data : NULL;
        size_t n = choose(keep, in->rows, errors, mr_buffer_data(index));
        rc = mr__pick_rows(in, mr_buffer_data(index), n, out, st);
    }
    mr_buffer_unref(index);
    mr_block_reset(&verdict);
    return rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__calls_open(it->state, it, program, apply, p->o.num_parallel_calls,
                          p->o.deterministic, st);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    const struct params *p = params;
    MR_TRY(mr__predicate_check(self, p->fn, st));
    *out = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0)));
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__calls_check(((const struct params *)params)->o.num_parallel_calls, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "True for the elements that stay."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX,
           .doc = "Blocks evaluated at once; auto: as needed; none: sequential."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: what is finished first comes first."),
    {0}};

const mr_op mr_op_filter = {
    .abi = MR_ABI_VERSION,
    .name = "filter",
    .doc = "Keeps the elements for which a function returns true.",
    .example = "range(10).filter(x => x % 2 == 1)",
    .memory_doc = "a block for each parallel call",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__calls),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS,
    .check = check,
    .infer = infer,
    .open = open,
    .next = mr__calls_next,
    .close = mr__calls_close,
    .save = mr__calls_save,
    .restore = mr__calls_restore,
};

mr_dataset *mr_filter(mr_dataset *input, mr_fn *fn, const mr_filter_opts *opts)
{
    struct params p = {.fn = fn};
    if (opts)
        p.o = *opts;
    mr_dataset *ds = mr_dataset_new(&mr_op_filter, &p, &input, 1);
    mr_fn_unref(fn);
    return ds;
}
