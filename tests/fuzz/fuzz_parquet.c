/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a Parquet file: its footer, and the rows of the columns that can be read, which are
 * the same again from another row on. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/formats/parquet/parquet_file.h"
#include "tests/fuzz/small_memory.h"

enum { MOST_COLUMNS = 16, MOST_ROWS = 2000, MOST_READS = 500 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t sum, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + ((const uint8_t *)p)[i];
    return sum;
}

static uint64_t sum_of(const mr_array *a, uint64_t sum)
{
    for (size_t i = 0; i < a->rows; i++) {
        const mr_row *row = (const mr_row *)a->data + i;
        bool ragged = a->storage == MR_RAGGED;
        const void *v = ragged ? row->data : mr_array_at(a, i);
        size_t n = ragged ? (size_t)row->shape[0] : 1;
        if (ragged && row->splits) { /* lists of lists */
            sum = mix(sum, row->splits, (n + 1) * sizeof *row->splits);
            n = (size_t)row->splits[n];
        }
        for (int k = 2; k < a->rank; k++)
            n *= (size_t)row->shape[k];
        if (a->dtype != MR_STRING)
            sum = mix(sum, v, n * mr_dtype_size(a->dtype));
        for (size_t k = 0; a->dtype == MR_STRING && k < n; k++)
            sum = mix(sum, ((const mr_bytes *)v)[k].data, ((const mr_bytes *)v)[k].size);
    }
    return sum;
}

/* Reads from row `from` on; sums[i] is that of the rows before row i, while there are some. */
static void read_rows(mr__parquet *f, size_t n, int64_t from, uint64_t *sums, size_t want)
{
    mr_status st;
    mr__parquet_seek(f, from);
    for (int reads = 0; reads < MOST_READS; reads++) {
        mr_array columns[MOST_COLUMNS] = {{0}};
        size_t rows = 0;
        int64_t at = mr__parquet_row(f);
        mr_code rc = mr__parquet_read(f, want, columns, &rows, &st);
        if (rc == MR_END || (rc != MR_OK && st.message[0] == '\0'))
            break;
        if (rc == MR_OK && (rows == 0 || rows > want))
            abort();
        uint64_t sum = 1;
        for (size_t i = 0; i < n && rc == MR_OK; i++) {
            sum = sum_of(&columns[i], sum);
            mr_array_reset(&columns[i]);
        }
        if (want == 1 && at < MOST_ROWS) {
            if (rc == MR_OK && sums[at] && sums[at] != sum)
                abort();
            sums[at] = rc == MR_OK ? sum : 0;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t sums[MOST_ROWS];
    char path[64];
    mr_status st;
    mr__parquet *f = NULL;
    size_t leaves[MOST_COLUMNS], n = 0;
    small_memory();
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (mr__parquet_open(&f, path, NULL, &st) == MR_OK) {
        const mr__parquet_footer *footer = mr__parquet_footer_of(f);
        for (size_t i = 0; i < footer->n_leaves && n < MOST_COLUMNS; i++)
            if (!footer->leaves[i].refusal)
                leaves[n++] = i;
        memset(sums, 0, sizeof sums);
        if (n && mr__parquet_select(f, leaves, n, NULL, &st) == MR_OK) {
            int64_t middle = mr__parquet_count(f) / 2;
            read_rows(f, n, 0, sums, 1);
            read_rows(f, n, middle < MOST_ROWS ? middle : 0, sums, 1);
            read_rows(f, n, 0, sums, 1000);
        }
    }
    mr__parquet_close(f);
    close(fd);
    return 0;
}
