/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping in the middle of an epoch and continuing exactly there: the position is saved after the
 * second batch, as a training run would after its last step, and restored into a new iterator. */
#include <millrace/millrace.h>
#include <stdio.h>

static mr_dataset *pipeline(void)
{
    mr_dataset *ds =
        mr_shuffle(mr_range(0, 20, 1), 20, &(mr_shuffle_opts){.seed = 7, .has_seed = true});
    return mr_prefetch(mr_batch(ds, 4, NULL), 2);
}

/* Prints up to `most` batches. */
static mr_code print_batches(mr_iterator *it, int most, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (most-- > 0 && (rc = mr_iterator_next(it, 1, &b, st)) == MR_OK) {
        const int64_t *v = mr_array_at(&b.columns[0], 0);
        for (int64_t i = 0; i < b.columns[0].shape[0]; i++)
            printf("%lld ", (long long)v[i]);
        printf("\n");
    }
    mr_block_reset(&b);
    return rc;
}

int main(void)
{
    mr_dataset *ds = pipeline();
    mr_iterator_opts opts = {.positions = true};
    mr_iterator *first = NULL, *second = NULL;
    void *position = NULL;
    size_t size = 0;
    mr_status st;
    mr_code rc = mr_iterator_open(&first, ds, &opts, &st);
    if (rc == MR_OK)
        rc = print_batches(first, 2, &st);
    if (rc == MR_OK)
        rc = mr_iterator_save(first, &position, &size, &st);
    mr_iterator_close(first);
    if (rc == MR_OK) {
        printf("-- stopped; the position has %zu bytes --\n", size);
        rc = mr_iterator_open(&second, ds, &opts, &st);
    }
    if (rc == MR_OK)
        rc = mr_iterator_restore(second, position, size, &st);
    if (rc == MR_OK)
        rc = print_batches(second, 100, &st);
    if (rc != MR_END)
        fprintf(stderr, "%s\n", st.message);
    mr_free(position);
    mr_iterator_close(second);
    mr_dataset_unref(ds);
    return rc != MR_END;
}
