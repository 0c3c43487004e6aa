/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/frame.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"

enum { CRC_AT = 20 };
static const char magic[4] = {'M', 'R', 'F', '1'};

void mr__frame_put(int kind, const void *head, size_t head_bytes, uint64_t payload_bytes,
                   uint8_t out[MR__FRAME_BYTES])
{
    memcpy(out, magic, sizeof magic);
    mr__store_le(out + 4, (uint64_t)kind, 4);
    mr__store_le(out + 8, head_bytes, 4);
    mr__store_le(out + 12, payload_bytes, 8);
    mr__store_le(out + CRC_AT, mr_crc32c_extend(mr_crc32c(out, CRC_AT), head, head_bytes), 4);
}

mr_code mr__frame_get(const uint8_t in[MR__FRAME_BYTES], uint64_t most_head, mr__frame *out,
                      mr_status *st)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return mr_fail(st, MR_DATA_LOSS,
                       "the peer does not speak this protocol: a frame begins "
                       "with MRF1");
    uint64_t kind = mr__load_le(in + 4, 4);
    mr__frame f = {.kind = (int)kind,
                   .head_bytes = (uint32_t)mr__load_le(in + 8, 4),
                   .payload_bytes = mr__load_le(in + 12, 8),
                   .crc = (uint32_t)mr__load_le(in + CRC_AT, 4)};
    if (kind != MR__FRAME_MESSAGE && kind != MR__FRAME_BLOCK)
        return mr_fail(st, MR_DATA_LOSS, "a frame of unknown kind %" PRIu64, kind);
    if (f.head_bytes > most_head)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "a frame's head has %" PRIu32 " bytes, at most %" PRIu64 " are accepted",
                       f.head_bytes, most_head);
    uint64_t most = kind == MR__FRAME_MESSAGE ? 0 : MR__FRAME_MOST_PAYLOAD;
    if (f.payload_bytes > most)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "a frame's payload has %" PRIu64 " bytes, at most %" PRIu64 " are accepted",
                       f.payload_bytes, most);
    *out = f;
    return MR_OK;
}

mr_code mr__frame_check_head(const mr__frame *f, const uint8_t in[MR__FRAME_BYTES],
                             const void *head, mr_status *st)
{
    uint32_t crc = mr_crc32c_extend(mr_crc32c(in, CRC_AT), head, f->head_bytes);
    if (crc != f->crc)
        return mr_fail(st, MR_DATA_LOSS,
                       "a frame was damaged on the way: its checksum does not "
                       "match");
    return MR_OK;
}
