/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer says of shared memory: places that are lent, wrapped and given back, 17 bytes a
 * step. What the two sides keep must stay consistent, and every byte that is wrapped readable. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/system/system.h"
#include "transport/net/lent_memory.h"

enum { SIZE = 1 << 16, MOST = 32 };
static volatile uint8_t seen; /* what is read must be read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Numbers near those that matter, as well as any. */
static uint64_t number(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x % 3 == 0 ? x : x % 3 == 1 ? x % (SIZE + 2) : x % 17 * 4096;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr__lender *l;
    mr__borrower *b = NULL;
    mr_buffer *held[MOST] = {NULL};
    mr_status st;
    uint64_t at, done[4];
    int fd;
    if (mr__lender_new(&l, SIZE, &fd, &st) != MR_OK)
        return 0;
    if (mr__borrower_new(&b, fd, SIZE, &st) != MR_OK)
        size = 0;
    mr__sys->close(fd);
    for (size_t step = 0; size >= 17; data += 17, size -= 17, step++) {
        uint64_t x = number(data + 1), y = number(data + 9);
        mr_buffer **place = &held[step % MOST];
        if (data[0] % 4 == 0) {
            void *p = x ? mr__lender_take(l, (size_t)x, &at) : NULL;
            if (p)
                memset(p, data[0], (size_t)x);
        } else if (data[0] % 4 == 1) {
            mr__lender_give(l, x);
        } else if (data[0] % 4 == 2) {
            mr_buffer_unref(*place);
            *place = NULL;
            if (mr__borrower_wrap(b, x, y, y, place, &st) == MR_OK) {
                const uint8_t *p = mr_buffer_data(*place);
                seen ^= (uint8_t)(p[0] ^ p[y - 1] ^ p[y + MR_SLACK - 1]);
            }
        } else {
            for (size_t n = mr__borrower_done(b, (size_t)x, done, 4); n; n--)
                mr__lender_give(l, done[n - 1]);
        }
        if (mr__lender_held(l) > SIZE)
            abort();
    }
    mr__borrower_unref(b);
    mr__lender_unref(l);
    for (size_t i = 0; i < MOST; i++)
        mr_buffer_unref(held[i]);
    return 0;
}
