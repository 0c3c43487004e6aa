/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/shard_upload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/glob.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/remote/object_list.h"
#include "pipeline/remote/object_ranges.h"

enum { MOST_OLD = 1 << 20 };
/* Bytes of parts in memory: those that are filled, of all files, and those that are being sent. */
#define MOST_FILLED ((int64_t)256 << 20)
#define MOST_SENT   ((int64_t)64 << 20)

struct mr__shard_upload {
    char *prefix;
    const char *ending;
    int64_t n;
    bool overwrite, zstd_records, rewinds;
    mr_cancel *cancel;
    mr__upload_group *group;
    char **old; /* URLs of old shards and their indexes */
    size_t n_old, old_room;
};

static int64_t part_of(int64_t n_shards, const mr_shard_writer_opts *o)
{
    int64_t all = o && o->memory_limit && o->memory_limit / 4 < MOST_FILLED ? o->memory_limit / 4
                                                                            : MOST_FILLED;
    int64_t files = o && o->format == MR_SHARDS_NPY ? 2 * n_shards : n_shards, part = all / files;
    return part > (int64_t)MR__UPLOAD_PART         ? (int64_t)MR__UPLOAD_PART
           : part < (int64_t)MR__UPLOAD_LEAST_PART ? (int64_t)MR__UPLOAD_LEAST_PART
                                                   : part;
}

static int64_t sent_of(const mr_shard_writer_opts *o, int64_t part)
{
    int64_t sent =
        o && o->memory_limit && o->memory_limit / 8 < MOST_SENT ? o->memory_limit / 8 : MOST_SENT;
    return sent > part ? sent : part;
}

int64_t mr__shard_upload_memory(int64_t n_shards, const mr_shard_writer_opts *o)
{
    if (!o->prefix || !mr__is_url(o->prefix))
        return 0;
    int64_t part = part_of(n_shards, o);
    return n_shards * part * (o->format == MR_SHARDS_NPY ? 2 : 1) + sent_of(o, part);
}

void mr__shard_upload_close(mr__shard_upload *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->n_old; i++)
        mr_free(u->old[i]);
    mr_free(u->old);
    mr__upload_group_free(u->group);
    mr_free(u->prefix);
    mr_free(u);
}

/* ---- old sets ---- */

static mr_code add_old(void *ctx, const char *url, mr_status *st)
{
    mr__shard_upload *u = ctx;
    const char *name = strrchr(u->prefix, '/') + 1;
    const char *of_url = url + (name - u->prefix);
    size_t stem = mr__index_stem(of_url), n = stem ? stem : strlen(of_url);
    if (strncmp(url, u->prefix, strlen(u->prefix)) != 0 ||
        mr__shard_prefix(of_url, n) != strlen(name))
        return MR_OK;
    MR_TRY(MR_GROW(u->old, u->old_room, u->n_old + 1, MOST_OLD, "the list of shards", st));
    u->old[u->n_old] = mr_strdup(url);
    return u->old[u->n_old++] ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
}

/* *exists: there is one, and *is_ours: it is a dictionary. */
static mr_code look_for_dictionary(const mr__shard_upload *u, bool *exists, bool *is_ours,
                                   mr_status *st)
{
    char head[4], *url = mr_strf("%s.dict", u->prefix);
    size_t got = 0;
    mr__object *o = NULL;
    mr_status why;
    if (!url)
        return mr_fail_memory(st, strlen(u->prefix), "a URL");
    mr__object_forget(url);
    mr_status_init(&why);
    mr_code rc = mr__object_open(&o, url, &why);
    if (rc == MR_OK)
        rc = mr__object_read(o, 0, head, sizeof head, &got, u->cancel, &why);
    *exists = rc == MR_OK;
    *is_ours = rc == MR_OK && got == sizeof head && mr__is_zstd_dictionary(head, sizeof head);
    mr__object_unref(o);
    mr_free(url);
    if (rc == MR_OK || rc == MR_NOT_FOUND)
        return MR_OK;
    if (st)
        *st = why;
    return rc;
}

static mr_code check_dictionary(const mr__shard_upload *u, mr_status *st)
{
    bool exists, is_ours;
    MR_TRY(look_for_dictionary(u, &exists, &is_ours, st));
    if (!exists || (is_ours && u->overwrite))
        return MR_OK;
    mr_code rc = mr_fail(st, MR_ALREADY_EXISTS,
                         "PREFIX.dict has the name of the dictionary; remove it, or, if it is the "
                         "dictionary of a removed set, overwrite it (--overwrite)");
    mr_status_at(st, u->prefix, -1, -1);
    return rc;
}

static mr_code find_old(mr__shard_upload *u, mr_status *st)
{
    for (size_t i = 0; i < u->n_old; i++)
        mr_free(u->old[i]);
    u->n_old = 0;
    char *quoted = mr_glob_quote(u->prefix), *pattern = quoted ? mr_strf("%s-*", quoted) : NULL;
    mr_cancel *before = mr_cancel_set_thread(u->cancel);
    mr_code rc = pattern ? mr__object_list(pattern, add_old, u, st)
                         : mr_fail_memory(st, strlen(u->prefix), "a pattern");
    mr_cancel_set_thread(before);
    mr_free(pattern);
    mr_free(quoted);
    if (rc == MR_OK && u->n_old && !u->overwrite) {
        rc = mr_fail(st, MR_ALREADY_EXISTS,
                     "shards exist under this prefix; remove them, or overwrite them "
                     "(--overwrite)");
        mr_status_at(st, u->old[0], -1, -1);
    }
    return rc;
}

mr_code mr__shard_upload_open(mr__shard_upload **out, const char *prefix, int64_t n_shards,
                              const mr_shard_writer_opts *opts, mr_status *st)
{
    MR_TRY(mr__url_check_writing(prefix, st));
    mr__shard_upload *u = mr_calloc(1, sizeof *u);
    if (!u)
        return mr_fail_memory(st, sizeof *u, "a shard writer");
    size_t part = (size_t)part_of(n_shards, opts);
    u->prefix = mr_strdup(prefix);
    u->group = mr__upload_group_new(part, (size_t)sent_of(opts, (int64_t)part));
    u->n = n_shards;
    u->overwrite = opts && opts->overwrite;
    u->zstd_records = opts && opts->zstd_records;
    u->rewinds = opts && opts->format == MR_SHARDS_NPY;
    u->cancel = opts ? opts->cancel : NULL;
    u->ending = mr_shard_ending(opts ? opts->format : MR_SHARDS_TFRECORD);
    mr_code rc =
        u->prefix && u->group ? find_old(u, st) : mr_fail_memory(st, sizeof *u, "a shard writer");
    if (rc == MR_OK && u->zstd_records)
        rc = check_dictionary(u, st);
    if (rc == MR_OK)
        *out = u;
    else
        mr__shard_upload_close(u);
    return rc;
}

mr__upload_opts mr__shard_upload_file(const mr__shard_upload *u, int64_t i)
{
    /* Even where old files are overwritten, shard 0 has been removed: of two writers one ends. */
    return (mr__upload_opts){.group = u->group,
                             .cancel = u->cancel,
                             .creates = !u->overwrite || i == 0,
                             .rewinds = u->rewinds};
}

static bool is_index(const mr__shard_upload *u, const char *url)
{
    (void)u;
    return mr__index_stem(url) > 0;
}

static bool is_first(const mr__shard_upload *u, const char *url)
{
    const char *number = url + strlen(u->prefix) + 1;
    return number[strspn(number, "0")] == '-' && !is_index(u, url);
}

/* The new set has no object of this name. */
static bool is_left(const mr__shard_upload *u, const char *url)
{
    const char *number = url + strlen(u->prefix) + 1, *of = strstr(number, "-of-");
    const char *dot = of ? strchr(of, '.') : NULL;
    return !dot || strtoll(of + 4, NULL, 10) != u->n || strcmp(dot + 1, u->ending) != 0;
}

static mr_code drop_old(mr__shard_upload *u, bool (*these)(const mr__shard_upload *, const char *),
                        mr_status *st)
{
    mr_cancel *before = mr_cancel_set_thread(u->cancel);
    mr_code rc = MR_OK;
    size_t kept = 0;
    for (size_t i = 0; i < u->n_old; i++) {
        if (rc != MR_OK || !these(u, u->old[i])) {
            u->old[kept++] = u->old[i];
            continue;
        }
        rc = mr__object_delete(u->old[i], st);
        mr_free(u->old[i]);
    }
    u->n_old = kept;
    mr_cancel_set_thread(before);
    return rc;
}

mr_code mr__shard_upload_begin(mr__shard_upload *u, bool dictionary, mr_status *st)
{
    /* Again: files may have appeared since it was opened. */
    MR_TRY(find_old(u, st));
    if (dictionary)
        MR_TRY(check_dictionary(u, st));
    MR_TRY(drop_old(u, is_first, st));
    return drop_old(u, is_index, st);
}

mr_code mr__shard_upload_end(mr__shard_upload *u, mr_status *st)
{
    return drop_old(u, is_left, st);
}
