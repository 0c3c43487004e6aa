/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over a connection: frames, messages, blocks. The first byte chooses the spec that
 * blocks are read with. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/crc32c.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/system/system.h"
#include "transport/wire/block_frame.h"
#include "transport/wire/messages.h"

static const char *const texts[] = {"range(3)", "from_tensors(\"a\", 1.0)",
                                    "range(3).map(x => zeros([x]))", "range(4).window(2)"};
static mr_dataset *graphs[4];
enum { SHARED = 1 << 16 };
static mr__lender *lender;
static mr__borrower *borrower;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The payload that the frame says, or what follows it. */
static void try_block(const uint8_t *head, size_t head_bytes, const uint8_t *payload, size_t left,
                      size_t payload_bytes, const mr_spec *spec)
{
    mr__incoming in = {0};
    mr_block b = MR_BLOCK_EMPTY;
    mr_buffer *buffer;
    mr_status st;
    uint64_t at;
    if (mr__incoming_head(&in, head, head_bytes, payload_bytes, &st) != MR_OK)
        return;
    if (in.memory) {
        /* What lies in shared memory is whatever the peer wrote there last: here, the rest of the
         * input. */
        void *p = mr__lender_take(lender, SHARED / 2, &at);
        if (left)
            memcpy(p, payload, left < SHARED / 2 ? left : SHARED / 2);
        if (mr__borrower_wrap(borrower, in.memory_at, in.memory, in.raw, &buffer, &st) == MR_OK)
            (void)!mr__incoming_block(&in, buffer, spec, &b, &st);
        mr__lender_give(lender, at);
    } else if (mr_buffer_alloc(&buffer, payload_bytes, &st) == MR_OK) {
        if (payload_bytes)
            memcpy(mr_buffer_data(buffer), payload, payload_bytes);
        /* The checksum is made right: no input that a fuzzer finds would pass it. */
        ((Mr__Wire__BlockHead *)in.head)->crc = mr_crc32c(payload, payload_bytes);
        (void)!mr__incoming_block(&in, buffer, spec, &b, &st);
    }
    mr__incoming_reset(&in);
    mr_block_reset(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_status st;
    mr__frame f;
    for (size_t i = 0; i < 4; i++)
        if (!graphs[i] && mr_dataset_from_text(texts[i], strlen(texts[i]), NULL, &graphs[i], &st))
            return 0;
    int fd;
    if (!lender && mr__lender_new(&lender, SHARED, &fd, &st) == MR_OK) {
        mr_code rc = mr__borrower_new(&borrower, fd, SHARED, &st);
        mr__sys->close(fd);
        if (rc != MR_OK)
            abort();
    }
    if (size < 1 + MR__FRAME_BYTES || !lender)
        return 0;
    const mr_spec *spec = mr_dataset_spec(graphs[*data++ % 4]);
    size--;
    if (mr__frame_get(data, MR__FRAME_MOST_HEAD, &f, &st) != MR_OK)
        return 0;
    const uint8_t *head = data + MR__FRAME_BYTES;
    size_t left = size - MR__FRAME_BYTES;
    if (f.head_bytes > left || f.payload_bytes > left - f.head_bytes)
        return 0;
    (void)!mr__frame_check_head(&f, data, head, &st);
    if (f.kind == MR__FRAME_BLOCK) {
        try_block(head, f.head_bytes, head + f.head_bytes,
                  f.payload_bytes ? (size_t)f.payload_bytes : left - f.head_bytes,
                  (size_t)f.payload_bytes, spec);
        return 0;
    }
    mr__message *m;
    if (mr__message_unpack(head, f.head_bytes, &m, &st) == MR_OK)
        mr__message_free(m);
    return 0;
}
