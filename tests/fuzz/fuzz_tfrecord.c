/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a TFRecord file. Byte 0 of the input chooses the compression, and
 * whether damage is gone past. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord/tfrecord.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mr_reader *r = NULL;
    const mr_tfrecord_read_opts own = {.skip_corrupt = data[0] & 4};
    mr_file_opts opts = {.compression = (mr_compression)(data[0] % 4), .own = &own};
    mr_status st;
    mr_array a = {0};
    if (mr_reader_open(&r, &mr_format_tfrecord, path, &opts, &st) == MR_OK) {
        uint64_t sum = 0;
        while (mr_reader_read(r, 1 + size % 7, 1 << 18, &a, &st) == MR_OK) {
            const mr_bytes *v = a.data;
            for (size_t i = 0; i < a.rows; i++)
                for (size_t k = 0; k < v[i].size; k++)
                    sum += (uint8_t)v[i].data[k];
            mr_array_reset(&a);
        }
        /* The sum is the reason to have looked at every byte. */
        __asm__ volatile("" : : "r"(sum));
        mr_reader_close(r);
    }
    close(fd);
    return 0;
}
