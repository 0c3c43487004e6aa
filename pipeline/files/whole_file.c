/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/whole_file.h"

#include <stdatomic.h>
#include <string.h>

#include "pipeline/files/read_ahead.h"
#include "pipeline/system/system.h"

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
    mr_fail(st, MR_OUT_OF_RANGE,
            "it has more than the %zu bytes allowed for such a file; is it the right one?", most);
    mr_status_at(st, path, -1, -1);
    return MR_OUT_OF_RANGE;
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

mr_code mr_file_read_buffer(const char *path, const mr_file_read_opts *o, mr_buffer **out,
                            size_t *size, mr_status *st)
{
    static const mr_file_read_opts none;
    struct stat s;
    size_t n = 0, most = o && o->most ? o->most : SIZE_MAX;
    mr_buffer *b = NULL;
    mr__read_ahead *r = NULL;
    o = o ? o : &none;
    if (o->regular && mr__sys->stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) {
        mr_fail(st, MR_INVALID_ARGUMENT, "this is a pipe or a device, not a regular file");
        mr_status_at(st, path, -1, -1);
        return MR_INVALID_ARGUMENT;
    }
    mr__read_opts opts = {.cancel = o->cancel, .no_ahead = true};
    mr_code rc = mr__read_ahead_open(&r, path, 0, &opts, st);
    int64_t known = rc == MR_OK ? mr__read_ahead_size(r) : -1;
    if (known > 0 && (uint64_t)known > most)
        rc = fail_size(path, most, st);
    /* One byte more than the size, so that the read that finds the end fits in the buffer. */
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&b, known < 0 ? FIRST : (size_t)known + 1, st);
    if (rc == MR_OK)
        rc = read_all(r, path, most, &b, &n, st);
    mr__read_ahead_close(r);
    if (rc == MR_OK) {
        ((char *)mr_buffer_data(b))[n] = '\0'; /* no buffer was full at the end */
        *out = b;
        *size = n;
        return MR_OK;
    }
    mr_buffer_unref(b);
    if (st)
        st->offset = -1; /* the file counts as a whole */
    return rc;
}

mr_code mr_file_read(const char *path, const mr_file_read_opts *opts, void **out, size_t *size,
                     mr_status *st)
{
    size_t n;
    mr_buffer *b;
    MR_TRY(mr_file_read_buffer(path, opts, &b, &n, st));
    void *bytes = mr_memdup(mr_buffer_data(b), n + 1);
    mr_buffer_unref(b);
    if (!bytes)
        return mr_fail_memory(st, n, "the contents of a file");
    *out = bytes;
    *size = n;
    return MR_OK;
}

static _Atomic(mr__file_read_fn) watcher;

void mr__file_read_watch(mr__file_read_fn fn)
{
    atomic_store(&watcher, fn);
}

mr_code mr__file_read_again(const char *path, mr_status *st)
{
    mr__file_read_fn fn = atomic_load(&watcher);
    return fn ? fn(path, st) : MR_OK;
}

mr_code mr__file_read_named(const char *path, const mr_file_read_opts *opts, mr_buffer **out,
                            size_t *size, mr_status *st)
{
    mr_status why;
    MR_TRY(mr__file_read_again(path, st));
    mr_status_init(&why);
    mr_code rc = mr_file_read_buffer(path, opts, out, size, &why);
    if (rc == MR_OK)
        return MR_OK;
    if (why.file[0]) { /* the location of the error is the record that contains the path */
        mr_status_prefix(&why, "%s", path);
        why.file[0] = '\0';
    }
    if (st)
        *st = why;
    return rc;
}
