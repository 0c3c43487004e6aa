/* SPDX-License-Identifier: Apache-2.0 */
/* A map function in C, over whole blocks: squares of the numbers 0 to 9, on several threads. */
#include <millrace/millrace.h>
#include <stdio.h>

/* in and out have one column of int64, with any number of rows. */
static mr_code square(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    const int64_t *x = in->columns[0].data;
    int64_t *y = out->columns[0].data;
    for (size_t i = 0; i < in->rows; i++)
        y[i] = x[i] * x[i];
    out->rows = in->rows;
    return MR_OK;
}

int main(void)
{
    mr_dataset *ds = mr_map(mr_range(0, 10, 1), mr_fn_block(square, NULL, NULL),
                            &(mr_map_opts){.num_parallel_calls = 2});
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 4, &b, &st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++)
            printf("%lld\n", (long long)*(int64_t *)mr_array_at(&b.columns[0], i));
    if (rc != MR_END)
        fprintf(stderr, "%s\n", st.message);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc != MR_END;
}
