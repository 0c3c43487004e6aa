/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_POSITION_BYTES_H
#define MR_SHARD_DISTRIBUTE_POSITION_BYTES_H
/* The bytes of a position while it is written. Private to shard/distribute/.
 *
 * thread   one at a time per object */
#include "pipeline/bytes.h"
#include "pipeline/memory/alloc.h"

typedef struct mr__bytes {
    unsigned char *v; /* owned: mr_free */
    size_t n, capacity;
} mr__bytes;

static inline mr_code mr__bytes_put(mr__bytes *b, const void *p, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(b->v, b->capacity, b->n + n, SIZE_MAX / 2, "a position", st));
    if (n)
        memcpy(b->v + b->n, p, n);
    b->n += n;
    return MR_OK;
}

static inline mr_code mr__bytes_put_u64(mr__bytes *b, uint64_t v, mr_status *st)
{
    unsigned char le[8];
    mr__store_le(le, v, 8);
    return mr__bytes_put(b, le, sizeof le, st);
}
#endif
