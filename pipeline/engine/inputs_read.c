/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/inputs_read.h"

#include <string.h>
#include <sys/stat.h>

#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/run.h"
#include "pipeline/files/whole_file.h"
#include "pipeline/fnv.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/system.h"

enum { MOST_INPUTS = 1 << 28 };

static const char what[] = "the files that were read";

static bool is_regular(const struct stat *is, mr__noted_input *out)
{
    out->pattern = false;
    out->size = is->st_size;
    out->seconds = is->st_mtim.tv_sec;
    out->nanoseconds = is->st_mtim.tv_nsec;
    return S_ISREG(is->st_mode);
}

/* What identifies the contents of an object is noted as its time. */
static bool look_at_object(const char *url, mr__noted_input *out)
{
    mr__object_info info;
    if (mr__object_look(url, &info, NULL) != MR_OK)
        return false;
    const char *mark = info.etag[0] ? info.etag : info.modified;
    uint64_t tag = mr__fnv1a(MR__FNV_BASIS, mark, strlen(mark));
    out->pattern = false;
    out->size = info.size;
    out->seconds = (int64_t)(tag >> 32);
    out->nanoseconds = (int64_t)(tag & UINT32_MAX);
    return true;
}

bool mr__look_at_input(const char *path, mr__noted_input *out)
{
    struct stat is;
    if (mr__is_url(path))
        return look_at_object(path, out);
    return mr__sys->stat(path, &is) == 0 && is_regular(&is, out);
}

void mr__iter_waits_for_end(mr_iter *it, bool does)
{
    mr_run *run = it->run;
    if (it->priv->waits == does)
        return;
    pthread_mutex_lock(&run->lock);
    mr_iter **at = &run->waiting;
    if (does) {
        it->priv->next_waiting = run->waiting;
        run->waiting = it;
    } else {
        while (*at != it)
            at = &(*at)->priv->next_waiting;
        *at = it->priv->next_waiting;
    }
    it->priv->waits = does;
    pthread_mutex_unlock(&run->lock);
}

bool mr__iter_pulled_by_tasks(mr_iter *it)
{
    it->priv->elsewhere = true;
    return mr__iter_may_block(it);
}

/* A file that a function reads: noted for the iterator that calls it. */
static mr_code note_of_function(const char *path, mr_status *st)
{
    const mr_iter *it = mr__iter_working();
    return it ? mr__iter_note_file(it, path, st) : MR_OK;
}

void mr__iter_record_inputs(mr_iter *it, mr__inputs_read *r)
{
    if (r && !r->ready) {
        mr__file_read_watch(note_of_function);
        pthread_mutex_init(&r->lock, NULL);
        r->ready = true;
    }
    it->priv->inputs_read = r;
}

void mr__inputs_read_reset(mr__inputs_read *r)
{
    for (size_t i = 0; i < r->n; i++)
        mr_free(r->v[i].name);
    mr_free(r->v);
    mr__hash_reset(&r->index);
    if (r->ready)
        pthread_mutex_destroy(&r->lock);
    *r = (mr__inputs_read){0};
}

static uint64_t hash_of(const mr__noted_input *x)
{
    return mr__fnv1a(MR__FNV_BASIS + x->pattern, x->name, strlen(x->name));
}

static bool is_same(const void *keys, size_t place, const void *key)
{
    const mr__noted_input *a = (const mr__noted_input *)keys + place, *b = key;
    return a->pattern == b->pattern && strcmp(a->name, b->name) == 0;
}

/* Call with the lock held. */
static bool has(const mr__inputs_read *r, const mr__noted_input *x)
{
    return mr__hash_find(&r->index, hash_of(x), is_same, r->v, x) != MR__NO_PLACE;
}

/* Call with the lock held; x is not in r. */
static mr_code add(mr__inputs_read *r, const mr__noted_input *x, mr_status *st)
{
    MR_TRY(MR_GROW(r->v, r->capacity, r->n + 1, MOST_INPUTS, what, st));
    MR_TRY(mr__hash_reserve(&r->index, r->n + 1, what, st));
    r->v[r->n] = *x;
    r->v[r->n].name = mr_strdup(x->name);
    if (!r->v[r->n].name)
        return mr_fail_memory(st, strlen(x->name), what);
    mr_code rc = mr__hash_add(&r->index, hash_of(x), r->n, what, st);
    r->n += rc == MR_OK;
    return rc;
}

/* The record of `it` or of the nearest iterator above it, from `it` on; NULL: not found. */
static mr__inputs_read *record_from(const mr_iter **it)
{
    for (; *it; *it = (*it)->priv->parent)
        if ((*it)->priv->inputs_read)
            return (*it)->priv->inputs_read;
    return NULL;
}

/* Adds x to all records from `at` on. *added: one did not have it. */
static mr_code add_to_all(const mr_iter *at, const mr__noted_input *x, bool *added, mr_status *st)
{
    mr__inputs_read *r;
    mr_code rc = MR_OK;
    *added = false;
    for (; rc == MR_OK && (r = record_from(&at)); at = at->priv->parent) {
        pthread_mutex_lock(&r->lock);
        if (!has(r, x)) {
            *added = true;
            rc = add(r, x, st);
        }
        pthread_mutex_unlock(&r->lock);
    }
    return rc;
}

bool mr__iter_is_recorded(const mr_iter *it)
{
    const mr_iter *at = it->priv->parent;
    return record_from(&at) != NULL;
}

mr_code mr__iter_note_again(const mr_iter *it, const mr__noted_input *x, mr_status *st)
{
    bool added;
    return add_to_all(it->priv->parent, x, &added, st);
}

static bool is_noted(mr__inputs_read *r, const mr__noted_input *x)
{
    pthread_mutex_lock(&r->lock);
    bool known = has(r, x); /* then the records above it have it too */
    pthread_mutex_unlock(&r->lock);
    return known;
}

/* The record may be stored, so it has no secrets. */
static mr_code note_object(const mr_iter *it, mr__inputs_read *r, const char *url, mr_status *st)
{
    mr__noted_input x = {.name = mr_strdup(url)};
    if (!x.name)
        return mr_fail_memory(st, strlen(url), what);
    mr_text_drop_secrets(x.name);
    mr_code rc = MR_OK;
    if (!is_noted(r, &x) && look_at_object(url, &x))
        rc = mr__iter_note_again(it, &x, st);
    mr_free(x.name);
    return rc;
}

mr_code mr__iter_note_file(const mr_iter *it, const char *path, mr_status *st)
{
    mr__noted_input x = {.name = (char *)(uintptr_t)path};
    const mr_iter *at = it->priv->parent;
    mr__inputs_read *r = record_from(&at);
    struct stat is;
    if (mr__is_url(path)) {
        mr_iter_set_may_block(it);
        return r ? note_object(it, r, path, st) : MR_OK;
    }
    if (r && is_noted(r, &x))
        return MR_OK;
    bool input = strcmp(path, "-") == 0, there = !input && mr__sys->stat(path, &is) == 0;
    if (there && is_regular(&is, &x))
        return r ? mr__iter_note_again(it, &x, st) : MR_OK;
    if (input || (there && !S_ISDIR(is.st_mode))) {
        mr_iter_set_may_block(it);
        atomic_store(&it->run->memory.reads_pipe, true);
    }
    return MR_OK;
}

mr_code mr__iter_note_pattern(const mr_iter *it, const char *pattern, bool *added, mr_status *st)
{
    const mr__noted_input x = {.name = (char *)(uintptr_t)pattern, .pattern = true};
    return add_to_all(it->priv->parent, &x, added, st);
}
