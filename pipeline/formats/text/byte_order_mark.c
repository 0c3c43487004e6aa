/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/text/byte_order_mark.h"

/* Whether a mark may begin with the n bytes at p. */
static bool may_be_mark(const uint8_t *p, size_t n)
{
    static const uint8_t marks[][4] = {{0xff, 0xfe, 0, 0}, {0, 0, 0xfe, 0xff}};
    for (size_t i = 0; i < 2 && n > 0 && n < 4; i++)
        if (memcmp(p, marks[i], n) == 0)
            return true;
    return n == 0 || (n < 3 && p[0] == 0xef) || (n < 2 && p[0] == 0xfe);
}

mr_code mr__skip_byte_order_mark(mr_reader *r, mr_status *st)
{
    mr__byte_stream *in = &r->in;
    if (r->record != 0 || mr__byte_stream_offset(in) != 0)
        return MR_OK;
    while (may_be_mark(in->at, (size_t)(in->end - in->at))) {
        mr_code rc = mr__byte_stream_fill(in, (size_t)(in->end - in->at) + 1, st);
        if (rc == MR_END)
            break;
        if (rc != MR_OK)
            return mr__reader_give_up(r, rc, st);
    }
    size_t n = (size_t)(in->end - in->at);
    const char *refusal = mr__utf_refusal(in->at, n);
    if (refusal)
        return mr__reader_give_up(r, mr_fail(st, MR_UNIMPLEMENTED, "%s", refusal), st);
    in->at += mr__byte_order_mark(in->at, n);
    return MR_OK;
}
