/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/hf.h"

#include <ctype.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/remote/object_ranges.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/secret_file.h"
#include "pipeline/system/fork.h"

enum { MOST_PAGE = 64 << 20, COMMIT = 40 };

#define HEAD "hf://datasets/"

/* ---- names ---- */

typedef struct name {
    char *repository; /* "OWNER/NAME" */
    char *revision;   /* as written, without percent-encoding */
    const char *path; /* in the URL, after the slash */
} name;

static void free_name(name *n)
{
    mr_free(n->repository);
    mr_free(n->revision);
    *n = (name){0};
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

static mr_code parse(const char *url, name *out, mr_status *st)
{
    *out = (name){0};
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
        free_name(out);
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

/* HUB + middle + repository + "/" + what + "/" + revision + rest, encoded. Owned; NULL: out of
 * memory. */
static char *address_of(const char *middle, const name *n, const char *what, const char *revision,
                        const char *rest)
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

/* ---- commits ---- */

typedef struct commit {
    struct commit *next;
    char *address; /* of the revision */
    char id[COMMIT + 1];
} commit;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
MR__AROUND_FORK(lock, NULL)
static commit *commits; /* as long as the process */

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT && strspn(text, "0123456789abcdef") == COMMIT;
}

static bool recall(const char *address, char *id)
{
    pthread_mutex_lock(&lock);
    const commit *c = commits;
    while (c && strcmp(c->address, address) != 0)
        c = c->next;
    if (c)
        memcpy(id, c->id, sizeof c->id);
    pthread_mutex_unlock(&lock);
    return c != NULL;
}

/* The first answer holds for all. */
static mr_code remember(const char *address, char *id, mr_status *st)
{
    if (recall(address, id))
        return MR_OK;
    commit *c = mr_calloc(1, sizeof *c);
    if (c)
        c->address = mr_strdup(address);
    if (!c || !c->address) {
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "a revision");
    }
    memcpy(c->id, id, sizeof c->id);
    pthread_mutex_lock(&lock);
    c->next = commits;
    commits = c;
    pthread_mutex_unlock(&lock);
    return MR_OK;
}

static mr_code read_document(const char *url, const char *address, json_t **out, char **link,
                             mr_status *st)
{
    mr__object *o = NULL;
    char *text = NULL;
    size_t size = 0;
    MR_TRY(mr__object_open_document(&o, url, address, st));
    mr_code rc = mr__object_read_whole(o, MOST_PAGE, &text, &size, mr__remote_cancel(), st);
    if (rc == MR_OK && !(*out = json_loadb(text, size, 0, NULL))) {
        rc = mr_fail(st, MR_DATA_LOSS, "the server's answer is not JSON; is HF_ENDPOINT a hub?");
        mr_status_of_no_element(st);
    }
    if (rc == MR_OK && link) {
        *link = o->link;
        o->link = NULL;
    }
    mr_free(text);
    mr__object_unref(o);
    return rc;
}

static mr_code resolve(const char *url, const name *n, char id[COMMIT + 1], mr_status *st)
{
    if (is_commit(n->revision)) {
        memcpy(id, n->revision, COMMIT + 1);
        return MR_OK;
    }
    const char *revision =
        strcmp(n->revision, "~parquet") == 0 ? "refs/convert/parquet" : n->revision;
    char *address = address_of("/api/datasets/", n, "revision", revision, "");
    json_t *root = NULL;
    mr_code rc = address ? MR_OK : mr_fail_memory(st, 0, "a URL");
    if (rc == MR_OK && !recall(address, id)) {
        rc = read_document(url, address, &root, NULL, st);
        const char *sha = json_string_value(json_object_get(root, "sha"));
        if (rc == MR_OK && (!sha || !is_commit(sha)))
            rc = mr_fail(st, MR_DATA_LOSS,
                         "the server's answer has no commit (sha); is HF_ENDPOINT a hub?");
        if (rc == MR_OK) {
            memcpy(id, sha, COMMIT + 1);
            rc = remember(address, id, st);
        }
        if (rc != MR_OK)
            mr_status_prefix(st, "revision %.64s", n->revision);
    }
    json_decref(root);
    mr_free(address);
    return rc;
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
    t->tried = "HF_TOKEN and the file of the hub's token (HF_HOME)";
    return none ? MR_OK : rc;
}

mr_code mr__hf_target(const char *url, const char *address, mr__object_target *out, mr_status *st)
{
    name n;
    char id[COMMIT + 1];
    *out = (mr__object_target){0};
    MR_TRY(parse(url, &n, st));
    mr_code rc = address ? MR_OK : resolve(url, &n, id, st);
    if (rc == MR_OK) {
        out->url =
            address ? mr_strdup(address) : address_of("/datasets/", &n, "resolve", id, n.path);
        out->region = mr_strdup("");
        out->redirects = true; /* to the stores that the hub names */
        rc = out->url && out->region ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
    }
    free_name(&n);
    return rc == MR_OK ? find_token(out, st) : rc;
}

/* ---- listings ---- */

typedef struct listing {
    const char *pattern;
    size_t head; /* bytes before the path */
    mr__object_list_fn found;
    void *ctx;
} listing;

static mr_code bad_page(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS,
                   "the server's answer is not a list of files; is HF_ENDPOINT a hub?");
}

/* {"type": "file", "path": ..., "size": ..., "oid": ..., "lfs": {"oid": ..., "size": ...}} */
static mr_code take_file(const listing *l, const json_t *file, mr_status *st)
{
    const char *type = json_string_value(json_object_get(file, "type"));
    const char *path = json_string_value(json_object_get(file, "path"));
    const json_t *lfs = json_object_get(file, "lfs");
    const char *oid = json_string_value(json_object_get(json_is_object(lfs) ? lfs : file, "oid"));
    const json_t *size = json_object_get(file, "size");
    char etag[136];
    if (!type || !path)
        return bad_page(st);
    if (strcmp(type, "file") != 0)
        return MR_OK;
    if (!oid || !json_is_integer(size))
        return bad_page(st);
    snprintf(etag, sizeof etag, "%.128s", oid);
    char *url = mr_strf("%.*s%s", (int)l->head, l->pattern, path);
    if (!url)
        return mr_fail_memory(st, strlen(path), "a URL");
    mr_code rc =
        mr__object_offer(l->pattern, url, json_integer_value(size), etag, l->found, l->ctx, st);
    mr_free(url);
    return rc;
}

/* The address of the next page, owned: ours with the query of the link, so that no other server
 * gets the token. NULL: this is the last one, or out of memory. */
static char *next_page(const char *address, const char *link)
{
    const char *next = link ? strstr(link, "rel=\"next\"") : NULL, *from = NULL;
    for (const char *at = link; next && at && at < next; at = strchr(at + 1, '<'))
        from = *at == '<' ? at : from;
    size_t n = from ? strcspn(from, ">") : 0;
    const char *query = from ? memchr(from, '?', n) : NULL;
    return query ? mr_strf("%.*s%.*s", (int)strcspn(address, "?"), address, (int)(from + n - query),
                           query)
                 : NULL;
}

static mr_code list_page(const listing *l, char **address, mr_status *st)
{
    json_t *root = NULL, *file;
    char *link = NULL;
    size_t i;
    mr_code rc = read_document(l->pattern, *address, &root, &link, st);
    if (rc == MR_OK && !json_is_array(root))
        rc = bad_page(st);
    if (rc == MR_OK)
        json_array_foreach(root, i, file)
        {
            rc = take_file(l, file, st);
            if (rc != MR_OK)
                break;
        }
    json_decref(root);
    char *next = rc == MR_OK ? next_page(*address, link) : NULL;
    if (next && strcmp(next, *address) == 0)
        rc = bad_page(st);
    if (rc == MR_OK && !next && link && strstr(link, "rel=\"next\""))
        rc = bad_page(st);
    mr_free(link);
    mr_free(*address);
    *address = next;
    return rc;
}

static mr_code list_tree(listing *l, const name *n, char *prefix, bool deep, mr_status *st)
{
    char id[COMMIT + 1];
    char *slash = strrchr(prefix, '/');
    prefix[slash ? slash - prefix : 0] = '\0';
    MR_TRY(resolve(l->pattern, n, id, st));
    char *tree = address_of("/api/datasets/", n, "tree", id, prefix);
    char *address = tree ? mr_strf("%s?recursive=%s", tree, deep ? "true" : "false") : NULL;
    mr_free(tree);
    if (!address)
        return mr_fail_memory(st, 0, "a URL");
    mr_status why;
    mr_code rc = MR_OK;
    for (bool first = true; rc == MR_OK && address; first = false) {
        rc = list_page(l, &address, &why);
        /* A folder that does not exist has no file. */
        if (first && rc == MR_NOT_FOUND && strstr(why.message, "EntryNotFound"))
            return MR_OK;
    }
    mr_free(address);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

mr_code mr__hf_list(const char *pattern, mr__object_list_fn found, void *ctx, mr_status *st)
{
    listing l = {.pattern = pattern, .found = found, .ctx = ctx};
    name n;
    char *prefix = NULL;
    bool wild = false, deep = false;
    MR_TRY(parse(pattern, &n, st));
    l.head = (size_t)(n.path - pattern);
    mr_code rc = mr__literal_prefix(n.path, &prefix, &wild, &deep, st);
    if (rc == MR_OK && wild)
        rc = list_tree(&l, &n, prefix, deep, st);
    else if (rc == MR_OK) {
        mr__object_info info;
        rc = mr__object_look(pattern, &info, st);
        if (rc == MR_OK && info.size >= 0 && info.ranges)
            rc = mr__object_offer(pattern, pattern, info.size, info.etag, found, ctx, st);
        else if (rc == MR_OK)
            rc = found(ctx, pattern, st);
    }
    mr_free(prefix);
    free_name(&n);
    return rc;
}
