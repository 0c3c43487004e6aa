/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/hf_list.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/remote/hf.h"
#include "pipeline/remote/object_ranges.h"

enum { MOST_PAGE = 64 << 20 };

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

static mr_code read_document(const char *url, const char *address, json_t **out, char **link,
                             mr_status *st)
{
    mr__object *o = NULL;
    char *text = NULL;
    size_t size = 0;
    MR_TRY(mr__object_open_document(&o, url, address, st));
    mr_code rc = mr__object_read_whole(o, MOST_PAGE, &text, &size, NULL, st);
    if (rc == MR_OK && !(*out = json_loadb(text, size, 0, NULL)))
        rc = bad_page(st);
    *link = o->link;
    o->link = NULL;
    mr_free(text);
    mr__object_unref(o);
    return rc;
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

static mr_code list_tree(listing *l, const mr__hf_name *n, char *prefix, bool deep, mr_status *st)
{
    char id[MR__HF_COMMIT + 1];
    char *slash = strrchr(prefix, '/');
    prefix[slash ? slash - prefix : 0] = '\0';
    MR_TRY(mr__hf_resolve(n, id, st));
    char *tree = mr__hf_address("/api/datasets/", n, "tree", id, prefix);
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
    mr__hf_name n;
    char *prefix = NULL;
    bool wild = false, deep = false;
    MR_TRY(mr__hf_parse(pattern, &n, st));
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
    mr__hf_name_reset(&n);
    return rc;
}
