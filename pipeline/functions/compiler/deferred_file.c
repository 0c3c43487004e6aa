/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/compiler/deferred_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pipeline/files/whole_file.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"

void mr__deferred_file_init(mr__deferred_file *l)
{
    mr__lock_init(&l->lock);
    l->ready = false;
    l->path = NULL;
}

void mr__deferred_file_reset(mr__deferred_file *l)
{
    mr__lock_destroy(&l->lock);
    mr_free(l->path);
}

mr_code mr__deferred_file_get(const mr_rows *r, mr__deferred_file *l,
                              mr_code (*make)(const mr_rows *r, mr_status *st), mr_status *st)
{
    mr_status why;
    mr_code rc = MR_OK;
    mr__lock_take(&l->lock);
    bool before = l->ready;
    if (!before)
        rc = make(r, &why);
    l->ready = before || rc == MR_OK;
    mr__lock_release(&l->lock);
    if (before && l->path) /* for iterators that record what they read; it does not change now */
        rc = mr__file_read_again(l->path, &why);
    if (rc == MR_OK)
        return MR_OK;
    bool lacks_memory = why.sys_errno == ENOMEM;
    if (!lacks_memory && rc != MR_CANCELLED)
        mr__rows_name_place(r, &why);
    if (rc != MR_CANCELLED)
        mr_status_of_no_element(&why);
    if (st)
        *st = why;
    return rc;
}

mr_code mr__deferred_file_read(const mr_rows *r, mr__deferred_file *l, const char *name,
                               const char *within, size_t most, char **path, mr_buffer **bytes,
                               size_t *size, mr_status *st)
{
    struct stat is;
    bool folder = mr__sys->stat(name, &is) == 0 && S_ISDIR(is.st_mode);
    *path = folder ? mr_strf("%s/%s", name, within) : mr_strdup(name);
    mr_free(l->path);
    l->path = *path ? mr_strdup(*path) : NULL;
    if (!l->path)
        return mr_fail_memory(st, strlen(name), "a file name");
    mr_file_read_opts opts = {.most = most, .cancel = r->errors->cancel};
    return mr__file_read_named(*path, &opts, bytes, size, st);
}
