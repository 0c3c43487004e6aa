/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/process_lock.h"
#include <string.h>
#include "pipeline/files/file_lock.h"
#include "pipeline/memory/alloc.h"

struct mr_process_lock {
    char *path;
    int fd;
};

mr_code mr_process_lock_take(mr_process_lock **out, const char *path, mr_status *st)
{
    bool busy = false;
    mr_process_lock *l = mr_calloc(1, sizeof *l);
    if (!l || !(l->path = mr_strdup(path))) {
        mr_free(l);
        return mr_fail_memory(st, strlen(path), "a lock");
    }
    mr_code rc = mr__file_lock(path, &l->fd, &busy, st);
    if (rc == MR_OK && busy) {
        rc = mr_fail(st, MR_UNAVAILABLE, "another process has locked it");
        mr_status_at(st, path, -1, -1);
    }
    if (rc == MR_OK) {
        *out = l;
        return MR_OK;
    }
    mr_free(l->path);
    mr_free(l);
    return rc;
}

void mr_process_lock_release(mr_process_lock *l)
{
    if (!l)
        return;
    mr__file_unlock(l->path, l->fd);
    mr_free(l->path);
    mr_free(l);
}
