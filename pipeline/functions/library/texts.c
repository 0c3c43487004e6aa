/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/texts.h"

#include "pipeline/utf8.h"

const char *const mr__units[] = {"byte", "char", NULL};

mr_code mr__texts_start(mr__texts *t, int rank, const int64_t *shape, size_t rows, mr_status *st)
{
    *t = (mr__texts){.n = 0};
    return mr_array_alloc(&t->out, MR_STRING, rank, shape, rows, st);
}

mr_code mr__texts_reserve(mr__texts *t, size_t n, mr_status *st)
{
    if (n > SIZE_MAX / 4 - t->n)
        return mr_fail_memory(st, n, "strings");
    return MR_GROW(t->v, t->capacity, t->n + n, SIZE_MAX / 4, "strings", st);
}

void mr__texts_next(mr__texts *t)
{
    /* The offset becomes an address when the memory no longer moves. */
    ((mr_bytes *)t->out.data)[t->i++] = (mr_bytes){NULL, t->n - t->begin};
    t->begin = t->n;
}

static void release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

mr_code mr__texts_finish(mr__texts *t, mr_code rc, mr_array *out, mr_status *st)
{
    mr_buffer *bytes = NULL;
    if (rc == MR_OK && t->v) {
        rc = mr_buffer_wrap(&bytes, t->v, t->n, false, release, NULL, st);
        if (rc == MR_OK) {
            t->v = NULL;
            rc = mr_buffer_hold(t->out.owner, bytes, st);
        }
    }
    if (rc == MR_OK) {
        const char *at = bytes ? mr_buffer_data(bytes) : NULL;
        mr_bytes *v = t->out.data;
        for (size_t i = 0; i < t->i; i++) {
            v[i].data = at;
            if (at)
                at += v[i].size;
        }
        *out = t->out;
    } else
        mr_array_reset(&t->out);
    mr_buffer_unref(bytes);
    mr_free(t->v);
    *t = (mr__texts){.n = 0};
    return rc;
}

size_t mr__utf8_count(const mr_bytes *s)
{
    size_t count = 0, at = 0;
    for (int32_t point; at < s->size; count++) {
        size_t n = mr__utf8_at(s->data + at, s->data + s->size, &point);
        at += n ? n : 1;
    }
    return count;
}

size_t mr__utf8_offset(const mr_bytes *s, size_t i)
{
    size_t at = 0;
    for (int32_t point; i > 0 && at < s->size; i--) {
        size_t n = mr__utf8_at(s->data + at, s->data + s->size, &point);
        at += n ? n : 1;
    }
    return at;
}
