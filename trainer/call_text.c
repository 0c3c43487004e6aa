/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/call_text.h"
#include <string.h>
#include "pipeline/memory/alloc.h"

mr_code mr__call_text_parse(mr__call_text *c, const char *text, const char *what, mr_status *st)
{
    const mr_expr *e;
    c->src = (mr__source){text, strlen(text)};
    MR_TRY(mr_expr_parse(text, c->src.size, &e, st));
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL && e->kind != MR_EX_STRING) {
        mr_code rc = mr__args_fail(&c->src, e, st,
                                   "%s is a name, with or without arguments in "
                                   "brackets",
                                   what);
        mr_expr_unref(e);
        return rc;
    }
    c->e = e;
    return MR_OK;
}

bool mr__call_text_is(const mr__call_text *c, const char *name)
{
    return name && c->e->text_size == strlen(name) &&
           memcmp(c->e->text, name, c->e->text_size) == 0;
}

mr_code mr__call_text_bind(const mr__call_text *c, const mr__arg *args, size_t params_size,
                           void **params, mr_status *st)
{
    void *p = mr_calloc(1, params_size ? params_size : 1);
    if (!p)
        return mr_fail_memory(st, params_size, "arguments");
    mr_code rc = mr__args_bind(&c->src, c->e, args, p, st);
    if (rc != MR_OK) {
        mr_free(p);
        return rc;
    }
    *params = p;
    return MR_OK;
}
