/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers of a build without libcurl. */
#include "pipeline/remote/small_request.h"
#include "pipeline/remote/transfer.h"

mr_code mr__transfer_start(mr__transfer **out, mr__object *o, int64_t from, int64_t to, bool bare,
                           mr_status *st)
{
    (void)out, (void)from, (void)to, (void)bare;
    mr_fail(st, MR_UNIMPLEMENTED,
            "this build reads local files only, because it was made without libcurl "
            "(libcurl4-openssl-dev); copy the file and use its local path");
    mr_status_at(st, o->url, -1, -1);
    mr_status_of_no_element(st);
    return MR_UNIMPLEMENTED;
}

mr_code mr__small_request_send(const mr__small_request *r, mr__small_answer *out, mr_status *st)
{
    (void)r, (void)out;
    return mr_fail(st, MR_UNIMPLEMENTED,
                   "this build cannot ask for credentials, because it was made without libcurl "
                   "(libcurl4-openssl-dev)");
}

void mr__small_answer_reset(mr__small_answer *a)
{
    (void)a;
}

mr_code mr__transfer_request(mr__transfer **out, mr__object *o, const mr__request *r, mr_status *st)
{
    (void)r;
    return mr__transfer_start(out, o, 0, -1, true, st);
}

int64_t mr__transfer_worked(void)
{
    return 0;
}

mr__answer mr__transfer_answer(const mr__transfer *t)
{
    (void)t;
    return (mr__answer){0};
}

void mr__transfer_drop(mr__transfer *t)
{
    (void)t;
}

mr_code mr__transfer_wait_known(mr__transfer *t, mr_cancel *cancel, mr_status *st)
{
    (void)t, (void)cancel;
    return mr_fail(st, MR_UNIMPLEMENTED, "no transfers");
}

bool mr__transfer_has_next(mr__transfer *t)
{
    (void)t;
    return false;
}

mr_code mr__transfer_take(mr__transfer *t, mr_cancel *cancel, mr_buffer **slot, uint8_t **data,
                          size_t *got, mr_status *st)
{
    (void)t, (void)cancel, (void)slot, (void)data, (void)got;
    return mr_fail(st, MR_UNIMPLEMENTED, "no transfers");
}
