/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a ledger: as they are, and as the text of its one chunk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "pipeline/crc32c.h"
#include "pipeline/formats/ledger/ledger.h"
#include "pipeline/formats/ledger/ledger_format.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[] = "/tmp/fuzz_ledger.XXXXXX";

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
}

static void read_file(void)
{
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    int64_t n = 0;
    uint64_t sum = 0;
    mr_code rc = mr_ledger_open(path, &r, &st);
    while (rc == MR_OK && (rc = mr_ledger_next(r, &e, &st)) == MR_OK) {
        if (e.number != n++)
            abort();
        for (size_t i = 0; i < e.n; i++) {
            const char *name = mr_ledger_name_of(r, &e.ids[i]);
            sum += e.ids[i].ordinal + (name ? strlen(name) : 0);
        }
    }
    if (rc != MR_END && !st.message[0])
        abort();
    (void)sum;
    mr_ledger_reader_close(r);
}

static void put_le32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* With checksums that are right. */
static void write_chunk(const uint8_t *text, size_t n)
{
    static uint8_t file[MR__LEDGER_HEADER + 2 * MR__LEDGER_CHUNK + 2 * MR__LEDGER_TEXT] =
        MR__LEDGER_MAGIC "\1";
    uint8_t *chunk = file + MR__LEDGER_HEADER, *data = chunk + MR__LEDGER_CHUNK;
    size_t size = ZSTD_compress(data, 2 * MR__LEDGER_TEXT, text, n, 1);
    if (ZSTD_isError(size))
        abort();
    put_le32(chunk, (uint32_t)size);
    put_le32(chunk + 4, (uint32_t)n);
    put_le32(chunk + 8, mr_crc32c_mask(mr_crc32c_extend(mr_crc32c(chunk, 8), data, size)));
    uint8_t *end = data + size;
    memset(end, 0, MR__LEDGER_CHUNK);
    put_le32(end + 8, mr_crc32c_mask(mr_crc32c(end, 8)));
    write_file(file, (size_t)(end + MR__LEDGER_CHUNK - file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    small_memory();
    if (!made) {
        int fd = mkstemp(path);
        if (fd < 0)
            abort();
        close(fd);
        atexit(remove_file);
        made = 1;
    }
    write_file(data, size);
    read_file();
    if (size && size <= MR__LEDGER_TEXT) {
        write_chunk(data, size);
        read_file();
    }
    return 0;
}
