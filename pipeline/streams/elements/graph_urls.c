/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/graph_urls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/remote/url.h"

enum { MOST = 1 << 28 };

static int compare(const void *a, const void *b)
{
    const mr__graph_url *x = a, *y = b;
    return strcmp(x->stored, y->stored);
}

static mr_code add(mr__graph_urls *u, const char *url, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(u->v, u->room, u->n + 1, MOST, "the URLs of a graph", st));
    mr__graph_url *x = &u->v[u->n++];
    *x = (mr__graph_url){mr_strndup(url, n), mr_strndup(url, n)};
    if (!x->stored || !x->url)
        return mr_fail_memory(st, n, "the URLs of a graph");
    mr_text_drop_secrets(x->stored);
    return MR_OK;
}

mr_code mr__graph_urls_of(const mr_dataset *ds, mr__graph_urls *out, mr_status *st)
{
    char *text = NULL;
    mr_status why;
    if (!ds)
        return MR_OK;
    mr_code rc = mr_dataset_to_text(ds, &text, &why);
    if (rc == MR_RESOURCE_EXHAUSTED && why.sys_errno == ENOMEM && st)
        *st = why;
    if (rc != MR_OK)
        return rc == MR_RESOURCE_EXHAUSTED && why.sys_errno == ENOMEM ? rc : MR_OK;
    /* A URL is the whole of a string of the text, which begins after a quote. */
    for (const char *at = text; rc == MR_OK && (at = strchr(at, '"'));) {
        size_t n = strcspn(++at, "\"\\");
        if (at[n] == '"' && mr__url_kind_of(at) == MR__URL_HTTP)
            rc = add(out, at, n, st);
        at += n;
    }
    mr_free(text);
    if (rc == MR_OK && out->n)
        qsort(out->v, out->n, sizeof *out->v, compare);
    else if (rc != MR_OK)
        mr__graph_urls_reset(out);
    return rc;
}

void mr__graph_urls_reset(mr__graph_urls *u)
{
    for (size_t i = 0; i < u->n; i++) {
        mr_free(u->v[i].stored);
        mr_free(u->v[i].url);
    }
    mr_free(u->v);
    *u = (mr__graph_urls){0};
}

const char *mr__graph_urls_find(const mr__graph_urls *u, const char *stored)
{
    const mr__graph_url key = {.stored = (char *)(uintptr_t)stored};
    const mr__graph_url *x = u->n ? bsearch(&key, u->v, u->n, sizeof key, compare) : NULL;
    return x ? x->url : stored;
}
