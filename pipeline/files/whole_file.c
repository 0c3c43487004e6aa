/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/whole_file.h"

#include <string.h>

#include "pipeline/files/read_ahead.h"

enum { FIRST = 64 << 10 };

static mr_code enlarge(mr_buffer **b, mr_status *st)
{
    size_t room = mr_buffer_size(*b);
    mr_buffer *larger;
    if (room > SIZE_MAX / 4)
        return mr_fail_memory(st, room, "a file");
    MR_TRY(mr_buffer_alloc(&larger, 2 * room, st));
    memcpy(mr_buffer_data(larger), mr_buffer_data(*b), room);
    mr_buffer_unref(*b);
    *b = larger;
    return MR_OK;
}

static mr_code fail_size(const char *path, size_t most, mr_status *st)
{
    return mr_fail(
        st, MR_OUT_OF_RANGE,
        "%s: it has more than the %zu bytes allowed for such a file; is it the right one?", path,
        most);
}

/* Reads the rest of the file; *n is the number of bytes in b. */
static mr_code read_all(mr__read_ahead *r, const char *path, size_t most, mr_buffer **b, size_t *n,
                        mr_status *st)
{
    mr_code rc = MR_OK;
    while (rc == MR_OK) {
        size_t room = mr_buffer_size(*b), got = 0;
        mr_buffer *slot; /* unused, since nothing is read ahead */
        uint8_t *data;
        if (*n == room) {
            rc = enlarge(b, st);
            continue;
        }
        rc = mr__read_ahead_next(r, (char *)mr_buffer_data(*b) + *n, room - *n, &slot, &data, &got,
                                 st);
        *n += got;
        if (*n > most)
            return fail_size(path, most, st);
    }
    return rc == MR_END ? MR_OK : rc;
}

mr_code mr__whole_file(const char *path, size_t most, mr_cancel *cancel, mr_buffer **out,
                       size_t *size, mr_status *st)
{
    mr_status why;
    mr_buffer *b = NULL;
    mr__read_ahead *r = NULL;
    mr__read_opts opts = {.cancel = cancel, .no_ahead = true};
    *size = 0;
    mr_code rc = mr__read_ahead_open(&r, path, 0, &opts, &why);
    int64_t known = rc == MR_OK ? mr__read_ahead_size(r) : -1;
    if (known > 0 && (uint64_t)known > most)
        rc = fail_size(path, most, &why);
    /* One byte more than the size, so that the read that finds the end fits in the buffer. */
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&b, known < 0 ? FIRST : (size_t)known + 1, &why);
    if (rc == MR_OK)
        rc = read_all(r, path, most, &b, size, &why);
    mr__read_ahead_close(r);
    if (rc == MR_OK) {
        *out = b;
        return MR_OK;
    }
    mr_buffer_unref(b);
    if (why.file[0]) { /* the location of the error is the record that contains the path */
        mr_status_prefix(&why, "%s", path);
        why.file[0] = '\0';
        why.offset = -1;
    }
    if (st)
        *st = why;
    return rc;
}
