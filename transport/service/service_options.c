/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/service_options.h"

#include <stdio.h>

#include "transport/net/address.h"
#include "transport/wire/token_file.h"

static mr_code fail(const char *name, const mr_status *why, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s", name, why->message);
}

mr_code mr__option_address(const char *name, const char *text, bool listens, mr_status *st)
{
    mr_status why;
    if (!text)
        return MR_OK;
    mr_code rc = listens ? mr__address_check_form(text, &why) : mr__address_check(text, &why);
    return rc == MR_OK ? MR_OK : fail(name, &why, st);
}

mr_code mr__option_token(const char *path, const mr_tls_opts *tls, int sides, mr__token *out,
                         mr_status *st)
{
    mr_status why;
    mr_code rc = mr__token_read_names(path, out, &why);
    if (rc == MR_OK) {
        rc = mr__tls_open(&out->tls, tls, sides, st); /* its messages name the option */
        if (rc != MR_OK)
            mr__token_free(out);
        return rc;
    }
    if (rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    return fail("token_file", &why, st);
}

mr_code mr__option_page_token(const char *path, mr__token *out, mr_status *st)
{
    mr_status why;
    mr_code rc = mr__token_read(path, out, &why);
    if (rc == MR_OK && !out->data)
        rc = mr_fail(&why, MR_INVALID_ARGUMENT, "it has no name");
    return rc == MR_OK ? MR_OK : fail("status_token_file", &why, st);
}
