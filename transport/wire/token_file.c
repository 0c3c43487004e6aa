/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/token_file.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/log.h"

mr_code mr__token_read(const char *path, mr__token *out, mr_status *st)
{
    *out = (mr__token){0};
    if (!path)
        path = getenv("MILLRACE_TOKEN_FILE");
    if (!path || !path[0])
        return MR_OK;
    char *text = NULL;
    size_t n = 0;
    mr_file_read_opts opts = {.most = MR__MOST_TOKEN + 1}; /* a newline follows it */
    mr_code rc = mr_file_read(path, &opts, (void **)&text, &n, st);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (rc != MR_OK && st) { /* for those who print the message alone */
        mr_status_prefix(st, "%s", path);
        st->file[0] = '\0';
    }
    if (rc == MR_OUT_OF_RANGE || (rc == MR_OK && (n == 0 || n > MR__MOST_TOKEN)))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: a token has 1 to %d bytes", path,
                     (int)MR__MOST_TOKEN);
    if (rc == MR_OK)
        *out = (mr__token){.data = text, .bytes = n};
    else
        mr_free(text);
    return rc;
}

mr_code mr__token_open(const char *path, const mr_tls_opts *tls, int sides, mr__token *out,
                       mr_status *st)
{
    MR_TRY(mr__token_read(path, out, st));
    mr_code rc = mr__tls_open(&out->tls, tls, sides, st);
    if (rc != MR_OK)
        mr__token_free(out);
    return rc;
}

const char *mr__cluster_token_file(const char *given)
{
    const char *file = given ? given : getenv("MILLRACE_CLUSTER_TOKEN_FILE");
    return file && file[0] ? file : NULL;
}

mr_code mr__cluster_token_open(const char *given, const mr_tls_opts *tls, mr__token *out,
                               mr_status *st)
{
    const char *file = mr__cluster_token_file(given);
    return mr__token_open(file ? file : "", tls, MR__TLS_PEERS, out, st);
}

mr_code mr__check_secure(const char *address, const mr__token *t, bool insecure, mr_status *st)
{
    if (mr__tls_accepts(t->tls))
        return MR_OK;
    if (!insecure)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s is open to other hosts without TLS: anyone who controls the "
                       "network could read and alter graphs and data; give a certificate (tls_cert "
                       "and tls_key, "
                       "--tls-cert and --tls-key), or allow it (insecure, --insecure)",
                       address);
    mr_log(MR_LOG_WARNING,
           "%s is open to other hosts without TLS (--insecure): anyone who controls the network "
           "can read and alter graphs and data",
           address);
    return MR_OK;
}

void mr__token_free(mr__token *t)
{
    mr__tls_free(t->tls);
    mr_free((void *)(uintptr_t)t->data);
    *t = (mr__token){0};
}
