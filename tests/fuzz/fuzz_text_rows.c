/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of JSON lines, or of CSV. Byte 0 of the input chooses. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const graphs[] = {
        ("jsonl(\"%s\", {\"a\": int64, \"b\": float32[], \"c\": bytes[], \"m\": [{\"r\": "
         "feature(bytes, default=\"\"), \"t\": int64[]}], \"j\": feature(json, default=\"\")})"),
        "csv(\"%s\", {\"a\": int64, \"b\": bytes})",
        "csv(\"%s\", [feature(bool, default=false), bytes, float64], header=false, sep=\";\")"};
    if (size == 0)
        return 0;
    char path[64], text[256];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(text, sizeof text, graphs[data[0] % 3], path);
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.has_threads = true};
    if (mr_dataset_from_text(text, strlen(text), NULL, &ds, &st) != MR_OK ||
        mr_iterator_open(&it, ds, &o, &st) != MR_OK)
        abort();
    /* An error a line at most, and one for the file. */
    for (size_t i = 0; i <= size + 1; i++)
        if (mr_iterator_next(it, 1 + size % 5, &b, &st) == MR_END)
            break;
        else if (i == size + 1)
            abort();
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    close(fd);
    return 0;
}
