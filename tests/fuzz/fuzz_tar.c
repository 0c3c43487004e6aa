/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a tar archive: its members, its records, and those after the first read again from
 * where they begin. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/formats/tar.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads to the end, and notes where the second record begins. */
static uint64_t read_all(mr_reader *r, size_t n, mr_file_position *second, size_t *rows)
{
    mr_array a = {0};
    mr_status st;
    uint64_t sum = 0;
    mr_code rc;
    *rows = 0;
    while ((rc = mr_reader_read(r, *rows ? 7 : 1, 1 << 18, &a, &st)) == MR_OK) {
        const mr_bytes *v = a.data;
        for (size_t i = 0; i < a.rows * n; i++)
            for (size_t k = 0; k < v[i].size; k++)
                sum = sum * 31 + (uint8_t)v[i].data[k];
        if (*rows == 0)
            mr_reader_position(r, second);
        *rows += a.rows;
        mr_array_reset(&a);
    }
    if (rc != MR_END && st.message[0] == '\0')
        abort();
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {MR__TAR_KEY, "txt", "jpg"};
    const mr_file_opts opts = {.own = &(mr__tar_opts){names, 3}};
    char path[64], **members = NULL;
    size_t n = 0, rows = 0, again = 0;
    mr_status st;
    mr_reader *r = NULL;
    mr_file_position second = {0}, unused;
    small_memory();
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (mr__tar_members(path, NULL, &members, &n, &st) == MR_OK) {
        for (size_t i = 0; i < n; i++)
            mr_free(members[i]);
        mr_free(members);
    }
    if (mr_reader_open(&r, &mr__format_tar, path, &opts, &st) == MR_OK) {
        read_all(r, 3, &second, &rows);
        /* libarchive is stricter with the first header it sees: damage may show here alone. */
        if (rows && mr_reader_seek(r, &second, &st) == MR_OK)
            read_all(r, 3, &unused, &again);
    }
    mr_reader_close(r);
    close(fd);
    return 0;
}
