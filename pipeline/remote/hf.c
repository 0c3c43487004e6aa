/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/hf.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/remote/s3.h"
#include "pipeline/remote/secret_file.h"
#include "pipeline/remote/small_request.h"

enum { LIMIT_MS = 30000, TRIES = 4 };

#define HEAD  "hf://datasets/"
#define TRIED "HF_TOKEN and the file of the hub's token (HF_HOME)"

/* ---- names ---- */

void mr__hf_name_reset(mr__hf_name *n)
{
    mr_free(n->repository);
    mr_free(n->revision);
    *n = (mr__hf_name){0};
}

/* The size of a revision: to the slash, but refs/pr/1 and refs/convert/parquet have two. */
static size_t revision_size(const char *text)
{
    size_t n = strcspn(text, "/");
    if (strncmp(text, "refs/pr/", 8) == 0)
        return 8 + strcspn(text + 8, "/");
    if (strncmp(text, "refs/convert/", 13) == 0)
        return 13 + strcspn(text + 13, "/");
    return n;
}

static bool is_part(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i]))
            return false;
    return n > 0 && *text != '.';
}

mr_code mr__hf_parse(const char *url, mr__hf_name *out, mr_status *st)
{
    *out = (mr__hf_name){0};
    if (strncmp(url, HEAD, sizeof HEAD - 1) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "of the Hub only datasets are read; write "
                       "hf://datasets/OWNER/NAME[@REVISION]/path");
    const char *at = url + sizeof HEAD - 1;
    size_t owner = strcspn(at, "/"), rest = at[owner] ? strcspn(at + owner + 1, "/@") : 0;
    const char *end = at + owner + (rest ? 1 + rest : 0);
    size_t revision = *end == '@' ? revision_size(end + 1) : 0;
    const char *slash = end + (*end == '@' ? 1 + revision : 0);
    if (!is_part(at, owner) || !is_part(at + owner + 1, rest) || (*end == '@' && !revision) ||
        *slash != '/' || !slash[1])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the URL has no owner, dataset or path; write "
                       "hf://datasets/OWNER/NAME[@REVISION]/path");
    out->repository = mr_strndup(at, (size_t)(end - at));
    out->revision = revision ? mr_strndup(end + 1, revision) : mr_strdup("main");
    out->path = slash + 1;
    if (!out->repository || !out->revision) {
        mr__hf_name_reset(out);
        return mr_fail_memory(st, strlen(url), "a URL");
    }
    mr__url_decode(out->revision);
    return MR_OK;
}

/* The hub, with its scheme and without a slash at its end. */
static char *hub(void)
{
    const char *v = mr__variable("HF_ENDPOINT");
    v = v ? v : "https://huggingface.co";
    size_t n = strlen(v);
    while (n && v[n - 1] == '/')
        n--;
    return mr_strf("%s%.*s", strstr(v, "://") ? "" : "https://", (int)n, v);
}

char *mr__hf_address(const char *middle, const mr__hf_name *n, const char *what,
                     const char *revision, const char *rest)
{
    char *at = hub(), *coded = mr__url_encode(revision, ""), *path = mr__url_encode(rest, "/");
    char *out = at && coded && path ? mr_strf("%s%s%s/%s/%s%s%s", at, middle, n->repository, what,
                                              coded, *path ? "/" : "", path)
                                    : NULL;
    mr_free(at);
    mr_free(coded);
    mr_free(path);
    return out;
}

/* ---- access ---- */

static mr_code ask_file(char *const *arguments, mr__credentials *out, mr_status *st)
{
    MR_TRY(mr__secret_line_read(arguments[0], &out->token, st));
    out->origin = "the file of the hub's token (HF_HOME)";
    if (!out->token || !*out->token || strpbrk(out->token, "\r\n"))
        return mr_fail(st, MR_NOT_FOUND, "%s has no token", arguments[0]);
    return MR_OK;
}

/* Where huggingface_hub keeps the token. Owned; NULL: out of memory. */
static char *token_path(void)
{
    const char *path = mr__variable("HF_TOKEN_PATH"), *folder = mr__variable("HF_HOME");
    const char *cache = mr__variable("XDG_CACHE_HOME"), *home = mr__variable("HOME");
    if (path)
        return mr_strdup(path);
    return folder  ? mr_strf("%s/token", folder)
           : cache ? mr_strf("%s/huggingface/token", cache)
                   : mr_strf("%s/.cache/huggingface/token", home ? home : "");
}

static mr_code find_token(mr__object_target *t, mr_status *st)
{
    const char *token = mr__variable("HF_TOKEN");
    const char *origin = "HF_TOKEN";
    char *path = NULL;
    mr__credentials c = {0};
    if (!token) {
        token = mr__variable("HUGGING_FACE_HUB_TOKEN");
        origin = "HUGGING_FACE_HUB_TOKEN";
    }
    if (token && strpbrk(token, "\r\n"))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s has a line break", origin);
    if (!token && !(path = token_path()))
        return mr_fail_memory(st, 0, "a file name");
    mr_code rc = token ? MR_OK : ask_file((char *[]){path}, &c, st);
    if (!token && rc == MR_OK) {
        const char *const arguments[MR__ACCESS_ARGUMENTS] = {path};
        rc = mr__access_put(&t->access, ask_file, arguments, &c, st);
        mr__credentials_reset(&c);
        if (rc == MR_OK)
            rc = mr__access_take(t->access, &t->generation, &c, st);
        token = c.token;
        origin = c.origin;
    }
    bool none = rc == MR_NOT_FOUND;
    if (rc == MR_OK) {
        t->token = mr_strdup(token);
        t->origin = mr_strdup(origin);
        rc = t->token && t->origin ? MR_OK : mr_fail_memory(st, strlen(token), "a token");
    }
    mr__credentials_reset(&c);
    mr_free(path);
    t->tried = TRIED;
    return none ? MR_OK : rc;
}

/* ---- commits ---- */

static bool is_commit(const char *text)
{
    return strlen(text) == MR__HF_COMMIT && strspn(text, "0123456789abcdef") == MR__HF_COMMIT;
}

/* "revision main: the server answered 404 (RevisionNotFound; request id ...)" */
static mr_code fail_answer(const mr__small_answer *a, const char *revision, const char *origin,
                           mr_status *st)
{
    char more[160] = "";
    if (a->code[0] || a->id[0])
        snprintf(more, sizeof more, " (%s%s%s%s)", a->code, a->code[0] && a->id[0] ? "; " : "",
                 a->id[0] ? "request id " : "", a->id);
    if (a->status == 401 || a->status == 403)
        return mr_fail(st, MR_PERMISSION_DENIED, "revision %.64s: the server answered %ld%s; %s%s",
                       revision, a->status, more,
                       origin ? "the credentials are those of "
                              : "no credentials were sent, since none were found in ",
                       origin ? origin : TRIED);
    mr_code rc = a->status == 404 || a->status == 410   ? MR_NOT_FOUND
                 : a->status == 429 || a->status >= 500 ? MR_UNAVAILABLE
                                                        : MR_FAILED_PRECONDITION;
    return mr_fail(st, rc, "revision %.64s: the server answered %ld%s", revision, a->status, more);
}

static mr_code take_commit(const mr__small_answer *a, const char *revision, char **out,
                           mr_status *st)
{
    json_t *root = json_loadb(a->text, a->size, 0, NULL);
    const char *sha = json_string_value(json_object_get(root, "sha"));
    mr_code rc = MR_OK;
    if (!sha || !is_commit(sha))
        rc = mr_fail(st, MR_DATA_LOSS,
                     "revision %.64s: the server's answer has no commit (sha); is HF_ENDPOINT a "
                     "hub?",
                     revision);
    else if (!(*out = mr_strdup(sha)))
        rc = mr_fail_memory(st, MR__HF_COMMIT, "a commit");
    json_decref(root);
    return rc;
}

/* A revision is a source whose answer never ends: the commit is the token. Arguments: address of
 * the revision, and its name. */
static mr_code ask_commit(char *const *arguments, mr__credentials *out, mr_status *st)
{
    mr__object_target t = {0};
    mr__small_answer a = {0};
    mr_code rc = find_token(&t, st);
    char *header = t.token ? mr_strf("Authorization: Bearer %s", t.token) : NULL;
    if (rc == MR_OK && t.token && !header)
        rc = mr_fail_memory(st, 0, "a token");
    if (rc == MR_OK)
        rc = mr__small_request_send(&(mr__small_request){.url = arguments[0],
                                                         .headers = {header},
                                                         .authorities = mr__authorities(NULL),
                                                         .limit_ms = LIMIT_MS,
                                                         .tries = TRIES,
                                                         .redirects = true,
                                                         .stops = mr__access_stops},
                                    &a, st);
    if (rc != MR_OK)
        mr_status_prefix(st, "revision %.64s", arguments[1]);
    else if (a.status != 200)
        rc = fail_answer(&a, arguments[1], t.origin, st);
    else
        rc = take_commit(&a, arguments[1], &out->token, st);
    out->origin = "the hub";
    mr__small_answer_reset(&a);
    mr__secret_free(header);
    mr__object_target_reset(&t);
    return rc;
}

mr_code mr__hf_resolve(const mr__hf_name *n, char id[MR__HF_COMMIT + 1], mr_status *st)
{
    if (is_commit(n->revision)) {
        memcpy(id, n->revision, MR__HF_COMMIT + 1);
        return MR_OK;
    }
    const char *revision =
        strcmp(n->revision, "~parquet") == 0 ? "refs/convert/parquet" : n->revision;
    char *address = mr__hf_address("/api/datasets/", n, "revision", revision, "");
    if (!address)
        return mr_fail_memory(st, 0, "a URL");
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {address, n->revision};
    mr__access *entry = NULL;
    mr__credentials c = {0};
    unsigned generation = 0;
    mr_code rc = mr__access_get(&entry, ask_commit, arguments, st);
    if (rc == MR_OK)
        rc = mr__access_take(entry, &generation, &c, st);
    if (rc == MR_OK)
        memcpy(id, c.token, MR__HF_COMMIT + 1);
    else
        mr_status_of_no_element(st);
    mr__credentials_reset(&c);
    mr__access_unref(entry);
    mr_free(address);
    return rc;
}

/* ---- targets ---- */

mr_code mr__hf_target(const char *url, const char *address, mr__object_target *out, mr_status *st)
{
    mr__hf_name n;
    char id[MR__HF_COMMIT + 1];
    *out = (mr__object_target){0};
    MR_TRY(mr__hf_parse(url, &n, st));
    mr_code rc = address ? MR_OK : mr__hf_resolve(&n, id, st);
    if (rc == MR_OK) {
        out->url =
            address ? mr_strdup(address) : mr__hf_address("/datasets/", &n, "resolve", id, n.path);
        out->region = mr_strdup("");
        out->redirects = true; /* to the stores that the hub names */
        rc = out->url && out->region ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
    }
    mr__hf_name_reset(&n);
    return rc == MR_OK ? find_token(out, st) : rc;
}
