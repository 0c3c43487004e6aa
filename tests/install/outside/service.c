/* SPDX-License-Identifier: Apache-2.0 */
/* A program that reads a graph as streams, from C and from the text form. */
#include <millrace/millrace-transport.h>
#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>

/* Takes ds over; its elements must be these. */
static int gives(mr_dataset *ds, const int64_t *want, size_t n)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t seen = 0;
    mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
        int64_t got = *(const int64_t *)mr_array_at(&b.columns[0], 0);
        if (seen >= n || got != want[seen]) {
            fprintf(stderr, "element %zu is %lld\n", seen, (long long)got);
            return 0;
        }
        seen++;
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    if (rc != MR_END)
        fprintf(stderr, "%s\n", st.message);
    return rc == MR_END && seen == n;
}

int main(void)
{
    static const int64_t order[] = {0, 1, 2, 3, 4, 5, 6};
    static const int64_t pairs[] = {0, 2, 1, 3, 4, 6, 5};
    static const char text[] = "range(7).distribute(\"local\", streams=2, block_length=2)";
    mr_status st;
    mr_dataset *ds = NULL;
    int ok =
        gives(mr_service_distribute(mr_range(0, 7, 1), "local", &(mr_service_opts){.streams = 2}),
              order, 7);
    if (mr_service_register_ops(&st) != MR_OK ||
        mr_dataset_from_text(text, strlen(text), NULL, &ds, &st) != MR_OK) {
        fprintf(stderr, "%s\n", st.message);
        return 1;
    }
    return ok && gives(ds, pairs, 7) ? 0 : 1;
}
