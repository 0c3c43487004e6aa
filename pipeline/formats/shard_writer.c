/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shard_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct mr_shard_writer {
    int64_t n, next, records;
    mr_tfrecord_writer *files[];
};

mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards,
                             const mr_tfrecord_writer_opts *opts, mr_status *st)
{
    if (n_shards < 1 || n_shards > 99999)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of shards must be 1 to 99999, not %" PRId64, n_shards);
    size_t path_size = strlen(prefix) + 64;
    char *path = mr_malloc(path_size);
    mr_shard_writer *w = mr_calloc(1, sizeof *w + (size_t)n_shards * sizeof *w->files);
    mr_code rc = path && w ? MR_OK : mr_fail_memory(st, path_size, "a shard writer");
    for (int64_t i = 0; i < n_shards && rc == MR_OK; i++) {
        snprintf(path, path_size, "%s-%05" PRId64 "-of-%05" PRId64 ".tfrecord", prefix, i,
                 n_shards);
        rc = mr_tfrecord_writer_open(&w->files[i], path, opts, st);
        if (rc == MR_OK)
            w->n = i + 1;
    }
    mr_free(path);
    if (rc != MR_OK) {
        mr_shard_writer_abort(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

mr_code mr_shard_writer_append(mr_shard_writer *w, const void *data, size_t n, mr_status *st)
{
    mr_code rc = mr_tfrecord_writer_append(w->files[w->next], data, n, st);
    if (rc == MR_OK) {
        w->records++;
        w->next = (w->next + 1) % w->n;
    }
    return rc;
}

mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st)
{
    mr_code rc = MR_OK;
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++) {
        rc = mr_tfrecord_writer_close(w->files[i], st);
        w->files[i] = NULL;
    }
    mr_shard_writer_abort(w);
    return rc;
}

void mr_shard_writer_abort(mr_shard_writer *w)
{
    for (int64_t i = 0; w && i < w->n; i++)
        mr_tfrecord_writer_abort(w->files[i]);
    mr_free(w);
}

int64_t mr_shard_writer_records(const mr_shard_writer *w)
{
    return w->records;
}
