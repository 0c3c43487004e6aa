/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"

/* By the C library: what a worker restricts to directories are the files of graphs. */
mr_code mr__token_read(const char *path, mr__token *out, mr_status *st)
{
    *out = (mr__token){0};
    if (!path)
        path = getenv("MILLRACE_TOKEN_FILE");
    if (!path || !path[0])
        return MR_OK;
    char *text = mr_malloc(MR__MOST_TOKEN + 3); /* a newline follows it */
    if (!text)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for the token of %s", path);
    FILE *f = fopen(path, "re");
    if (!f) {
        mr_free(text);
        return mr_fail_errno(st, errno, "%s: cannot open the file", path);
    }
    errno = 0;
    size_t n = fread(text, 1, MR__MOST_TOKEN + 2, f);
    mr_code rc = ferror(f) ? mr_fail_errno(st, errno, "%s: cannot read the file", path) : MR_OK;
    fclose(f);
    bool is_whole = n < MR__MOST_TOKEN + 2;
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (rc == MR_OK && (n == 0 || n > MR__MOST_TOKEN || !is_whole))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: a token has 1 to %d bytes", path,
                     (int)MR__MOST_TOKEN);
    if (rc == MR_OK) {
        text[n] = '\0';
        *out = (mr__token){.data = text, .bytes = n};
    } else {
        mr_free(text);
    }
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
