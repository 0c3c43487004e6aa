/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/remote_object.h"

static _Thread_local mr_cancel *of_thread;

mr_cancel *mr__remote_cancel_set(mr_cancel *c)
{
    mr_cancel *before = of_thread;
    of_thread = c;
    return before;
}

mr_cancel *mr__remote_cancel(void)
{
    return of_thread;
}
