/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"

static const char marker[] = "# names";

/* *text = the file's content, of at most `most` bytes, and a zero; owned.
 * By the C library: what a worker restricts to directories are the files of graphs. */
static mr_code read_whole(const char *path, size_t most, char **out, size_t *n, mr_status *st)
{
    char *text = mr_malloc(most + 2);
    if (!text)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for the token of %s", path);
    FILE *f = fopen(path, "re");
    if (!f) {
        mr_free(text);
        return mr_fail_errno(st, errno, "%s: cannot open the file", path);
    }
    errno = 0;
    *n = fread(text, 1, most + 1, f);
    mr_code rc = ferror(f) ? mr_fail_errno(st, errno, "%s: cannot read the file", path) : MR_OK;
    fclose(f);
    text[*n] = '\0';
    *out = text;
    if (rc != MR_OK)
        mr_free(text);
    return rc;
}

static bool has_names(const char *text, size_t n)
{
    size_t mark = sizeof marker - 1;
    return n >= mark && memcmp(text, marker, mark) == 0 &&
           (n == mark || text[mark] == '\n' || text[mark] == '\r');
}

/* Takes over text. */
static mr_code one_token(const char *path, char *text, size_t n, mr__token *out, mr_status *st)
{
    bool is_whole = n < MR__MOST_TOKEN + 2; /* a newline follows it */
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (n == 0 || n > MR__MOST_TOKEN || !is_whole) {
        mr_free(text);
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: a token has 1 to %d bytes", path,
                       (int)MR__MOST_TOKEN);
    }
    text[n] = '\0';
    *out = (mr__token){.data = text, .bytes = n};
    return MR_OK;
}

/* Whether a word may be a name: it goes to the log. */
static bool is_name(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
            return false;
    return n > 0 && n < MR__NAME_BYTES && s[0] != '#';
}

static mr_code take_line(const char *path, size_t number, char *line, mr__token_name *v, size_t *n,
                         mr_status *st)
{
    size_t most = strlen(line);
    while (most && strchr(" \t\r", line[most - 1]))
        line[--most] = '\0';
    if (!line[0] || line[0] == '#')
        return MR_OK;
    char *token = line + strcspn(line, " \t");
    if (*token)
        *token++ = '\0';
    token += strspn(token, " \t");
    size_t bytes = strlen(token);
    if (!is_name(line) || bytes < 1 || bytes > MR__MOST_TOKEN)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: line %zu is not NAME TOKEN: a name of 1 to %d bytes, and a token of 1 "
                       "to %d",
                       path, number, MR__NAME_BYTES - 1, (int)MR__MOST_TOKEN);
    if (*n == MR__MOST_TOKENS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: it has more than %d tokens", path,
                       (int)MR__MOST_TOKENS);
    for (size_t i = 0; i < *n; i++)
        if (v[i].bytes == bytes && memcmp(v[i].data, token, bytes) == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s: line %zu has the token of %s again; each needs its own", path,
                           number, v[i].name);
    v[(*n)++] = (mr__token_name){line, token, bytes};
    return MR_OK;
}

/* The list, followed by the text, in one block of memory. */
static mr_code list_of(const char *path, const char *text, size_t bytes, mr__token *out,
                       mr_status *st)
{
    size_t lines = 1, n = 0, number = 1;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    mr__token_name *v = mr_malloc(lines * sizeof *v + bytes + 1);
    if (!v)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "out of memory for the tokens of %s", path);
    char *own = memcpy((char *)(v + lines), text, bytes + 1);
    mr_code rc = MR_OK;
    if (bytes > MR__MOST_TOKEN_FILE || memchr(own, '\0', bytes))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: a file of tokens is text of at most %d bytes",
                     path, (int)MR__MOST_TOKEN_FILE);
    for (char *line = own, *end; rc == MR_OK && line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        rc = take_line(path, number++, line, v, &n, st);
    }
    if (rc == MR_OK && !n)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: no line has a name and a token", path);
    if (rc != MR_OK) {
        mr_free(v);
        return rc;
    }
    *out = (mr__token){.data = v[0].data, .bytes = v[0].bytes, .names = v, .n_names = n};
    return MR_OK;
}

static mr_code read_token(const char *path, bool takes_names, mr__token *out, mr_status *st)
{
    char *text = NULL;
    size_t n = 0;
    *out = (mr__token){0};
    if (!path)
        path = getenv("MILLRACE_TOKEN_FILE");
    if (!path || !path[0])
        return MR_OK;
    MR_TRY(read_whole(path, takes_names ? MR__MOST_TOKEN_FILE : MR__MOST_TOKEN + 1, &text, &n, st));
    if (!has_names(text, n))
        return one_token(path, text, n, out, st);
    mr_code rc =
        takes_names
            ? list_of(path, text, n, out, st)
            : mr_fail(st, MR_INVALID_ARGUMENT,
                      "%s: it has tokens with names, which only a dispatcher, its workers and "
                      "millrace service take; a file with a single token is needed here",
                      path);
    mr_free(text);
    return rc;
}

mr_code mr__token_read(const char *path, mr__token *out, mr_status *st)
{
    return read_token(path, false, out, st);
}

mr_code mr__token_read_names(const char *path, mr__token *out, mr_status *st)
{
    return read_token(path, true, out, st);
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
    mr_free((void *)(uintptr_t)(t->names ? (const void *)t->names : t->data));
    *t = (mr__token){0};
}
