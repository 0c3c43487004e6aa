/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_message.h"

mr_code mr__arrow_message_read(const uint8_t *v, size_t n, mr__arrow_message *out, mr_status *st)
{
    mr__arrow_message m = {.flat = {.v = v, .n = n}};
    mr__flat_table t = mr__flat_root(&m.flat);
    m.version = mr__flat_int(&m.flat, &t, 0, 2, 0);
    m.kind = mr__flat_int(&m.flat, &t, 1, 1, 0);
    m.header = mr__flat_child(&m.flat, &t, 2);
    m.body_bytes = mr__flat_int(&m.flat, &t, 3, 8, 0);
    if (m.flat.bad || m.body_bytes < 0 || !m.header.at)
        return mr_fail(st, MR_DATA_LOSS, "damaged metadata: a message that cannot be");
    *out = m;
    return MR_OK;
}

mr_code mr__arrow_message_rows(mr__arrow_message *m, int64_t *rows, mr_status *st)
{
    *rows = mr__flat_int(&m->flat, &m->header, 0, 8, 0);
    if (m->flat.bad || *rows < 0)
        return mr_fail(st, MR_DATA_LOSS, "damaged metadata: a batch with no number of rows");
    return MR_OK;
}
