/* SPDX-License-Identifier: Apache-2.0 */
#include <millrace/millrace.h>
#include <stdio.h>

int main(void)
{
    mr_dataset *ds = mr_batch(mr_range(0, 10, 1), 4, NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t batches = 0;
    mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        batches += b.rows;
    if (rc != MR_END) {
        char line[1600];
        mr_status_format(&st, line, sizeof line);
        fprintf(stderr, "%s\n", line);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc == MR_END && batches == 3 ? 0 : 1;
}
