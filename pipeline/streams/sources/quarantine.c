/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/quarantine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/fnv.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/url.h"
#include "pipeline/system/retry.h"

/* FOLDER/NAME-HASH-OFFSET, with the hash of the whole path, so that files of the same name in
 * several folders do not collide. The same damage has the same name in each epoch. */
static mr_code open_file(mr__quarantine *q, const mr_tfrecord_damage *d, mr_status *st)
{
    const char *slash = strrchr(d->path, '/'), *name = slash ? slash + 1 : d->path;
    char *folder = NULL;
    MR_TRY(mr_iter_file_path(q->it, q->folder, &folder, st));
    mr_code may = mr__url_check_writing(folder, st);
    if (may != MR_OK) {
        mr_free(folder);
        return may;
    }
    uint64_t hash = mr__fnv1a(MR__FNV_BASIS, d->path, strlen(d->path));
    char *path = mr_strf("%s/%s-%08" PRIx32 "-%" PRId64, folder, name, (uint32_t)hash, d->offset);
    mr_code rc = path ? MR_OK : mr_fail_memory(st, strlen(name), "a file name");
    if (rc == MR_OK && mr__mkdir_again(folder, 0777) != 0 && errno != EEXIST) {
        rc = mr_fail_errno(st, errno, "cannot create the folder for damaged records");
        mr_status_at(st, folder, -1, -1);
    }
    if (rc == MR_OK)
        rc = mr_atomic_file_open(&q->file, path, &(mr_atomic_file_opts){.sync = MR_SYNC_NONE}, st);
    mr_free(path);
    mr_free(folder);
    return rc;
}

static mr_code bytes(void *ctx, const mr_tfrecord_damage *d, const void *p, size_t n, mr_status *st)
{
    mr__quarantine *q = ctx;
    if (q->most >= 0 && q->skipped >= (uint64_t)q->most)
        return MR_OK; /* it is not skipped */
    mr_code rc = q->file ? MR_OK : open_file(q, d, st);
    if (rc == MR_OK)
        rc = mr_atomic_file_put(q->file, p, n, st);
    if (rc != MR_OK) {
        mr__quarantine_close(q);
        mr_status_of_no_element(st);
    }
    return rc;
}

static mr_code skipped(void *ctx, const mr_tfrecord_damage *d, mr_status *st)
{
    mr__quarantine *q = ctx;
    if (q->most >= 0 && q->skipped >= (uint64_t)q->most) {
        mr_code rc = mr_fail(st, MR_DATA_LOSS,
                             "%s; max_skipped=%" PRId64
                             " damaged places were skipped before; the rest of the file is skipped",
                             d->what, q->most);
        mr_status_at(st, d->path, d->offset, d->record);
        return rc;
    }
    mr_atomic_file *f = q->file;
    q->file = NULL;
    mr_code rc = mr_atomic_file_close(f, MR_OK, st);
    if (rc != MR_OK) {
        mr_status_of_no_element(st);
        return rc;
    }
    q->skipped++;
    mr_log(MR_LOG_WARNING,
           "%s: record %" PRId64 " at byte %" PRId64 ": %s; its bytes up to %" PRId64
           " are skipped (damaged place %" PRIu64 " so far)",
           d->path, d->record, d->offset, d->what, d->end, q->skipped);
    return MR_OK;
}

void mr__quarantine_init(mr__quarantine *q, mr_iter *it, int64_t most, const char *folder)
{
    *q = (mr__quarantine){.opts = {.skip_corrupt = true,
                                   .bytes = folder ? bytes : NULL,
                                   .skipped = skipped,
                                   .ctx = q},
                          .it = it,
                          .most = most,
                          .folder = folder};
}

void mr__quarantine_close(mr__quarantine *q)
{
    mr_atomic_file_abort(q->file);
    q->file = NULL;
}
