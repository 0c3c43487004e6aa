/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an Arrow file or stream: its columns, all that elements can have of them, its rows,
 * those after the first read again, and how many there are. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum;

static void see(const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + p[i];
}

static void see_values(const mr_array *a, const void *data, size_t n)
{
    const mr_bytes *v = data;
    if (a->dtype != MR_STRING)
        see(data, n * mr_dtype_size(a->dtype));
    for (size_t i = 0; a->dtype == MR_STRING && i < n; i++)
        see(v[i].data, v[i].size);
}

/* Every byte of row i. */
static void see_row(const mr_array *a, size_t i)
{
    if (a->storage != MR_RAGGED) {
        see_values(a, mr_array_at(a, i), mr_array_row_values(a));
        return;
    }
    const mr_row *r = (const mr_row *)a->data + i;
    size_t n = 1;
    int k = 0;
    if (r->splits && a->rank > 1) {
        n = (size_t)r->splits[r->shape[0]];
        k = 2;
    }
    for (; k < a->rank; k++)
        n *= (size_t)r->shape[k];
    see_values(a, r->data, n);
}

/* Reads to the end, of rows without nulls every byte; notes where the second one is. */
static void read_all(mr_reader *r, mr_file_position *second, size_t *rows)
{
    mr_array a = {0};
    mr_status st;
    mr_code rc;
    *rows = 0;
    while ((rc = mr_reader_read(r, *rows ? 7 : 1, 1 << 18, &a, &st)) == MR_OK) {
        mr_block b = MR_BLOCK_EMPTY;
        const uint32_t *nulls;
        int64_t batch;
        if (mr__arrow_take_rows(r, &b, &nulls, &batch, &st) != MR_OK)
            break;
        if (b.rows != a.rows)
            abort();
        for (size_t i = 0; i < b.rows; i++)
            for (size_t c = 0; c < b.n_columns && !(nulls && nulls[i]); c++)
                see_row(&b.columns[c], i);
        if (*rows == 0)
            mr_reader_position(r, second);
        *rows += b.rows;
        mr_block_reset(&b);
        mr_array_reset(&a);
        if (*rows > 100000) /* lists of no values take no bytes */
            return;
    }
    if (rc != MR_END && rc != MR_OK && st.message[0] == '\0')
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const mr_bytes names[] = {{"view", 4}, {"a", 1},       {"n", 1},   {"s", 1}, {"x", 1},
                                     {"l", 1},    {"structs", 7}, {"map", 3}, {"y", 1}};
    char path[64];
    size_t rows = 0, again = 0;
    int64_t count;
    mr_spec *spec = NULL;
    mr_status st;
    mr_reader *r = NULL;
    mr_file_position second = {0}, unused;
    small_memory();
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mr_code rc = mr__arrow_file_spec(path, NULL, 0, &spec, &st);
    for (size_t i = 0; i < sizeof names / sizeof *names && rc != MR_OK; i++)
        rc = mr__arrow_file_spec(path, &names[i], 1, &spec, &st);
    if (rc == MR_OK) {
        const mr__arrow_opts own = {.spec = spec};
        const mr_file_opts opts = {.own = &own};
        if (mr_reader_open(&r, &mr__format_arrow, path, &opts, &st) == MR_OK) {
            read_all(r, &second, &rows);
            if (rows && rows <= 100000 && mr_reader_seek(r, &second, &st) == MR_OK) {
                read_all(r, &unused, &again);
                if (again + 1 != rows)
                    abort();
            }
        }
        mr_reader_close(r);
        mr_spec_unref(spec);
    }
    rc = mr__arrow_file_count(path, &count, &(uint64_t){0}, &st);
    if (rc == MR_OK ? count < (int64_t)rows && rows <= 100000 : st.message[0] == '\0')
        abort();
    close(fd);
    return 0;
}
