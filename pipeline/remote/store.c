/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/store_internal.h"

#include <string.h>

#include "pipeline/remote/object_list.h"
#include "pipeline/remote/upload.h"

MR_API bool mr__store_is_url(const char *name)
{
    return mr__is_url(name);
}

MR_API mr_code mr__store_check_writing(const char *name, mr_status *st)
{
    return mr__url_check_writing(name, st);
}

MR_API mr_code mr__store_refuse_writing(const char *name, mr_status *st)
{
    return mr__url_refuse_writing(name, st);
}

typedef struct lister {
    mr__store_fn found;
    void *ctx;
} lister;

static mr_code pass_on(void *ctx, const char *url, mr_status *st)
{
    const lister *l = ctx;
    mr__object_info info;
    bool known = mr__object_recall(url, &info);
    return l->found(l->ctx, url, known ? info.size : 0, st);
}

MR_API mr_code mr__store_list(const char *prefix, mr__store_fn found, void *ctx, mr_status *st)
{
    return mr__object_list_below(prefix, pass_on, &(lister){found, ctx}, st);
}

typedef struct searched {
    const char *url;
    bool found;
} searched;

static mr_code compare(void *ctx, const char *url, mr_status *st)
{
    searched *s = ctx;
    (void)st;
    s->found = s->found || strcmp(url, s->url) == 0;
    return MR_OK;
}

MR_API mr_code mr__store_has(const char *url, bool *there, mr_status *st)
{
    searched s = {.url = url};
    mr_code rc = mr__object_list_below(url, compare, &s, st);
    *there = s.found;
    return rc;
}

MR_API mr_code mr__store_delete(const char *url, mr_status *st)
{
    return mr__object_delete(url, st);
}

MR_API void mr__store_forget(const char *url)
{
    mr__object_forget(url);
}
