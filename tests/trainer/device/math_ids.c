/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on class numbers among the features, against plain loops. */
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"

static mr_status st;

static const size_t shapes[][3] = {/* numbers, classes, width */
                                   {0, 3, 2},
                                   {1, 1, 1},
                                   {7, 5, 3},
                                   {60, 4, 33},
                                   {501, 1000, 7}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int32_t *draw_ids(bench *b, size_t n, size_t classes)
{
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(mr_test_random(&b->seed) % classes);
    return ids;
}

static void check_fault(bench *b, const mr_math_fault *p, uint64_t count, uint64_t row,
                        double value)
{
    mr_math_fault *f = get(b, p, sizeof *f);
    mr_eq_u64(f->count, count);
    mr_eq_u64(f->row, row);
    if (count > 0) {
        mr_eq_f64(f->label, value, 0);
        mr_eq_u64(f->is_feature, 1);
    }
    free(f);
}

ON_DEVICES(rows_of_a_table_are_gathered_and_their_gradients_summed)
{
    for (size_t t = 0; t < 2 * N_SHAPES; t++) {
        size_t n = shapes[t / 2][0], classes = shapes[t / 2][1], width = shapes[t / 2][2];
        bool bad = t % 2 && n > 5; /* two numbers that are not classes */
        int32_t *ids = draw_ids(b, n, classes);
        float *table = draw(b, classes * width), *dy = draw(b, n * width);
        double *y = doubles(n * width), *dtable = doubles(classes * width);
        mr_math_fault none = MR_MATH_FAULT_NONE;
        if (bad) {
            ids[5] = -1;
            ids[n - 1] = (int32_t)classes;
        }
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < width; j++) {
                if (ids[i] < 0 || (size_t)ids[i] >= classes)
                    continue;
                y[i * width + j] = table[(size_t)ids[i] * width + j];
                dtable[(size_t)ids[i] * width + j] += dy[i * width + j];
            }
        mr_test_context("%zu numbers of %zu classes, %zu wide", n, classes, width);
        mr_math_gather g = {.n = n,
                            .width = width,
                            .classes = classes,
                            .ids_per_row = 3,
                            .first_row = 100,
                            .id_dtype = MR_INT32,
                            .ids = put(b, ids, n * sizeof *ids),
                            .table = put_floats(b, table, classes * width),
                            .y = put_floats(b, NULL, n * width),
                            .fault = put(b, &none, sizeof none)};
        mr_math_gather_backward d = {n,
                                     width,
                                     classes,
                                     MR_INT32,
                                     g.ids,
                                     put_floats(b, dy, n * width),
                                     put_floats(b, NULL, classes * width)};
        mr_ok(b->m->gather(b->s, &g, &st), &st);
        mr_ok(b->m->gather_backward(b->s, &d, &st), &st);
        expect(b, g.y, y, n * width, 0);
        expect(b, d.dtable, dtable, classes * width, 1e-5);
        check_fault(b, g.fault, bad ? 2 : 0, bad ? 101 : UINT64_MAX, -1);
        free(ids);
        free(table);
        free(dy);
        drop_blocks(b);
    }
}

ON_DEVICES(numbers_are_encoded_as_ones_and_counts)
{
    for (size_t t = 0; t < 4 * N_SHAPES; t++) {
        size_t rows = shapes[t / 4][0], classes = shapes[t / 4][1], per = shapes[t / 4][2];
        bool once = t % 2, bad = t / 2 % 2 && rows > 5;
        int32_t *ids = draw_ids(b, rows * per, classes);
        double *y = doubles(rows * classes);
        mr_math_fault none = MR_MATH_FAULT_NONE;
        if (bad)
            ids[5 * per] = (int32_t)classes + 3;
        for (size_t i = 0; i < rows * per; i++)
            if ((size_t)ids[i] < classes) {
                double *one = &y[i / per * classes + (size_t)ids[i]];
                *one = once ? 1 : *one + 1;
            }
        mr_test_context("%zux%zu numbers of %zu classes", rows, per, classes);
        mr_math_encode e = {.once = once,
                            .rows = rows,
                            .ids_per_row = per,
                            .classes = classes,
                            .per_row = 2,
                            .first_row = 10,
                            .id_dtype = MR_INT32,
                            .ids = put(b, ids, rows * per * sizeof *ids),
                            .y = put_floats(b, NULL, rows * classes),
                            .fault = put(b, &none, sizeof none)};
        mr_ok(b->m->encode(b->s, &e, &st), &st);
        expect(b, e.y, y, rows * classes, 0);
        check_fault(b, e.fault, bad, bad ? 12 : UINT64_MAX, (double)classes + 3);
        free(ids);
        drop_blocks(b);
    }
}
