/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_CALLBACK_CODE_H
#define MR_PIPELINE_SYSTEM_CALLBACK_CODE_H
/* What a function of the user returned. */
#include "pipeline/status.h"

/* rc, or MR_INTERNAL if it is neither MR_OK nor negative, which callers would take for the end of
 * the data. st: that of the call, initialized before it; if the function left no message, it gets
 * one. who: for messages, "a C function". */
static inline mr_code mr__callback_code(mr_code rc, const char *who, mr_status *st)
{
    if (rc > 0)
        return mr_fail(st, MR_INTERNAL, "%s returned %d, expected MR_OK or an error", who, (int)rc);
    if (rc < 0 && !st->code)
        mr_fail(st, rc, "%s failed without a message", who);
    return rc;
}

/* The same for a function that may also return MR_END. */
static inline mr_code mr__callback_step(mr_code rc, const char *who, mr_status *st)
{
    return rc <= 0 || rc == MR_END
               ? rc
               : mr_fail(st, MR_INTERNAL, "%s returned %d, expected MR_OK, MR_END or an error", who,
                         (int)rc);
}

/* The first for a status `why` that the function was given in place of the caller's, which may be
 * NULL and gets its error. */
static inline mr_code mr__callback_passed(mr_code rc, const char *who, mr_status *why,
                                          mr_status *st)
{
    rc = mr__callback_code(rc, who, why);
    if (rc != MR_OK && st)
        *st = *why;
    return rc;
}
#endif
