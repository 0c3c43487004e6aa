/* SPDX-License-Identifier: Apache-2.0 */
/* filter: keeps the elements for which a function returns true. streams/parallel_calls.c calls it,
 * in parallel or not. A block that is kept completely is passed on without a copy. */
#include "pipeline/ops/apply.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/streams/parallel_calls.h"
#include "pipeline/streams/row_filter.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#endif

struct params {
    mr_fn *fn;
    mr_filter_opts o;
};

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512vl,avx512bw,popcnt")))

WIDE static size_t count_kept(const uint8_t *keep, size_t rows)
{
    size_t n = 0, row = 0;
    for (; row + 64 <= rows; row += 64) {
        __m512i v = _mm512_loadu_si512(keep + row);
        n += (size_t)__builtin_popcountll(_mm512_test_epi8_mask(v, v));
    }
    for (; row < rows; row++)
        n += keep[row] != 0;
    return n;
}

/* Copies the values of 4 or 8 bytes whose keep is not 0, and up to MR_SLACK bytes after them. */
WIDE static void copy_kept(const uint8_t *keep, size_t rows, const char *from, char *to,
                           size_t size)
{
    size_t row = 0;
    for (; row + 8 <= rows; row += 8, from += 8 * size) {
        __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)(keep + row));
        __mmask8 kept = (__mmask8)_mm_test_epi8_mask(v, v);
        if (size == 8) {
            __m512i all = _mm512_loadu_si512(from);
            _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(kept, all));
        } else {
            __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)from);
            _mm256_storeu_si256((__m256i *)(void *)to, _mm256_maskz_compress_epi32(kept, all));
        }
        to += (size_t)__builtin_popcount(kept) * size;
    }
    for (; row < rows; row++, from += size)
        if (keep[row]) {
            memcpy(to, from, size);
            to += size;
        }
}

/* The same with AVX2. */
#define NARROW __attribute__((target("avx2,popcnt")))

NARROW static size_t count_kept_narrow(const uint8_t *keep, size_t rows)
{
    size_t n = 0, row = 0;
    for (; row + 32 <= rows; row += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(keep + row));
        __m256i none = _mm256_cmpeq_epi8(v, _mm256_setzero_si256());
        n += 32 - (size_t)__builtin_popcount((unsigned)_mm256_movemask_epi8(none));
    }
    for (; row < rows; row++)
        n += keep[row] != 0;
    return n;
}

/* order[k]: four 8-byte lanes as their 4-byte halves; the kept lanes, which are the bits of k, come
 * first. */
#define HALVES(a) 2 * (a), 2 * (a) + 1
#define LANES(a, b, c, d)                                                                          \
    {                                                                                              \
        HALVES(a), HALVES(b), HALVES(c), HALVES(d)                                                 \
    }
static const uint32_t order[16][8] = {
    LANES(0, 1, 2, 3), LANES(0, 1, 2, 3), LANES(1, 0, 2, 3), LANES(0, 1, 2, 3),
    LANES(2, 0, 1, 3), LANES(0, 2, 1, 3), LANES(1, 2, 0, 3), LANES(0, 1, 2, 3),
    LANES(3, 0, 1, 2), LANES(0, 3, 1, 2), LANES(1, 3, 0, 2), LANES(0, 1, 3, 2),
    LANES(2, 3, 0, 1), LANES(0, 2, 3, 1), LANES(1, 2, 3, 0), LANES(0, 1, 2, 3)};

NARROW static inline char *copy_four(unsigned k, const char *from, char *to, size_t size)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)order[k]);
    if (size == 8) {
        __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)from);
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permutevar8x32_epi32(all, halves));
    } else { /* every other half is twice a lane */
        __m256i lanes = _mm256_srli_epi32(halves, 1);
        __m256i each =
            _mm256_permutevar8x32_epi32(lanes, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
        __m256i all = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)from));
        __m256i kept = _mm256_permutevar8x32_epi32(all, each);
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(kept));
    }
    return to + (size_t)__builtin_popcount(k) * size;
}

NARROW static void copy_kept_narrow(const uint8_t *keep, size_t rows, const char *from, char *to,
                                    size_t size)
{
    size_t row = 0;
    for (; row + 8 <= rows; row += 8, from += 8 * size) {
        __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)(keep + row));
        __m128i none = _mm_cmpeq_epi8(v, _mm_setzero_si128());
        unsigned kept = ~(unsigned)_mm_movemask_epi8(none);
        to = copy_four(kept & 15, from, to, size);
        to = copy_four(kept >> 4 & 15, from + 4 * size, to, size);
    }
    for (; row < rows; row++, from += size)
        if (keep[row]) {
            memcpy(to, from, size);
            to += size;
        }
}

static bool is_wide(void)
{
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

/* out = the rows whose keep is not 0; `in` may be moved from. */
static mr_code keep_numbers(mr_block *in, const uint8_t *keep, mr_block *out, mr_status *st)
{
    bool wide = is_wide();
    size_t n = wide ? count_kept(keep, in->rows) : count_kept_narrow(keep, in->rows);
    mr_block_clear(out);
    if (n == in->rows) {
        mr_block_move(out, in);
        return MR_OK;
    }
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_block_start(out, in, n, st));
    for (size_t c = 0; c < in->n_columns; c++) {
        const char *from = in->columns[c].data;
        size_t size = mr_array_row_bytes(&in->columns[c]);
        if (wide)
            copy_kept(keep, in->rows, from, out->columns[c].data, size);
        else
            copy_kept_narrow(keep, in->rows, from, out->columns[c].data, size);
        out->columns[c].rows = n;
    }
    out->rows = n;
    return MR_OK;
}

/* true if possible: all columns have such values, there are no identities, and the processor
 * supports it. */
static bool are_numbers(const mr_block *in)
{
    bool yes = (is_wide() || __builtin_cpu_supports("avx2")) && !in->ids.ids;
    for (size_t c = 0; c < in->n_columns && yes; c++) {
        size_t bytes = mr_array_row_bytes(&in->columns[c]);
        yes = in->columns[c].storage == MR_DENSE && (bytes == 4 || bytes == 8);
    }
    return yes;
}
#endif

/* Lists the rows of `in` to keep, and places errors relative to the kept rows. keep has an entry
 * for each row without an error. */
static size_t choose(const uint8_t *keep, size_t rows, mr_row_errors *errors, uint32_t *index)
{
    size_t n = 0, e = 0, first = errors->n ? errors->v[0].row : rows;
    for (size_t row = 0; row < first; row++) { /* without a branch */
        index[n] = (uint32_t)row;
        n += keep[row] != 0;
    }
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

static mr_code keep_rows(mr_block *in, const uint8_t *keep, mr_row_errors *errors, mr_block *out,
                         mr_status *st)
{
    mr_buffer *index;
#if defined(__x86_64__)
    if (errors->n == 0 && are_numbers(in))
        return keep_numbers(in, keep, out, st);
#endif
    MR_TRY(mr_buffer_alloc(&index, in->rows * sizeof(uint32_t), st));
    size_t n = choose(keep, in->rows, errors, mr_buffer_data(index));
    mr_code rc = mr__pick_rows(in, mr_buffer_data(index), n, out, st);
    mr_buffer_unref(index);
    return rc;
}

static mr_code apply(const mr_program *program, mr_block *in, mr_block *out, mr_row_errors *errors,
                     size_t *bytes, mr_status *st)
{
    mr_block verdict = MR_BLOCK_EMPTY;
    mr_code rc = mr__program_run_measured(program, in, &verdict, errors, bytes, st);
    if (rc == MR_OK)
        rc = mr__predicate_check_verdict("filter", &verdict, st);
    if (rc == MR_OK)
        rc = keep_rows(in, verdict.rows ? verdict.columns[0].data : NULL, errors, out, st);
    mr_block_reset(&verdict);
    return rc;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    const mr_program *program;
    MR_TRY(mr_iter_program(it, p->fn, mr_iter_input_spec(it, 0), &program, st));
    return mr__parallel_calls_open(it->state, it, program, apply, p->o.num_parallel_calls,
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
    return mr__parallel_calls_check(((const struct params *)params)->o.num_parallel_calls, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, fn, .doc = "True for the elements to keep."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX,
           .doc = "Blocks evaluated at once; auto: as needed; none: sequential."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order; false: emits elements as they are finished."),
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
    .iter_size = sizeof(mr__parallel_calls),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS,
    .check = check,
    .infer = infer,
    .open = open,
    .next = mr__parallel_calls_next,
    .close = mr__parallel_calls_close,
    .save = mr__parallel_calls_save,
    .restore = mr__parallel_calls_restore,
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
