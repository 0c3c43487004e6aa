/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the index of a file of records; bytes 0 and 1 are the size of that file. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord/record_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/fuzz_record_index.XXXXXX", path[64], name[64];

static void remove_folder(void)
{
    unlink(name);
    unlink(path);
    rmdir(folder);
}

static void write_file(const char *to, const uint8_t *data, size_t size, off_t length)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || (length && ftruncate(fd, length) != 0))
        abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The length 3 and its checksum, as the first record of every file has them. */
    static const uint8_t first[] = {3, 0, 0, 0, 0, 0, 0, 0, 0xb0, 0x99, 0x49, 0x0e};
    mr_record_index *ix = NULL;
    mr_status st;
    if (size < 2)
        return 0;
    if (!name[0]) {
        if (!mkdtemp(folder))
            abort();
        snprintf(path, sizeof path, "%s/r", folder);
        snprintf(name, sizeof name, "%s/r.idx", folder);
        atexit(remove_folder);
    }
    write_file(path, first, sizeof first, (off_t)(data[0] | data[1] << 8));
    write_file(name, data + 2, size - 2, 0);
    if (mr_record_index_open(&ix, path, &st) == MR_OK) {
        int64_t n = mr_record_index_count(ix), at = 0, offset, bytes;
        for (int64_t i = 0; i < n; i++) {
            mr_record_index_at(ix, i, &offset, &bytes);
            if (offset != at || bytes < 16)
                abort();
            at += bytes;
        }
    }
    mr_record_index_close(ix);
    return 0;
}
