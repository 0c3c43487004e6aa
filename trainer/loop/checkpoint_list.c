/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoints in a directory, and whether each is whole. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/store_internal.h"
#include "pipeline/system/system.h"
#include "trainer/exchange/checkpoint_state.h"
#include "trainer/exchange/saved_model_impl.h"
#include "trainer/files/json_file.h"
#include "trainer/files/remote_saved.h"
#include "trainer/loop/checkpoint.h"

enum { MAX_CHECKPOINTS = 1 << 20 };

typedef struct found {
    char *name;
    char why[256];
    mr_checkpoint_info info;
} found;

typedef struct listing {
    const char *directory;
    char *latest; /* NULL: none is named */
    found *all;
    size_t n, capacity;
} listing;

static mr_code add_size(void *ctx, const char *name, mr_status *st)
{
    found *f = ctx;
    struct stat s;
    (void)st;
    char *path = mr__path_in(f->name, name); /* the full path, during the check */
    if (path && mr__sys->stat(path, &s) == 0 && S_ISREG(s.st_mode))
        f->info.bytes += (uint64_t)s.st_size;
    mr_free(path);
    return MR_OK;
}

static mr_code check_parts(const char *path, mr__train_state *state, mr_status *st)
{
    mr_saved *saved = NULL;
    mr_safetensors *slots = NULL;
    json_t *root = NULL;
    mr_code rc = mr_saved_open(&saved, path, st);
    if (rc == MR_OK)
        rc = mr__load_tensors(path, "optimizer.safetensors", &slots, st);
    if (rc == MR_OK)
        rc = mr__load_json(path, "state.json", &root, st);
    if (rc == MR_OK)
        rc = mr__read_state(root, state, st);
    if (rc == MR_OK)
        rc = mr__check_files(root, path, st);
    mr_saved_close(saved);
    mr_safetensors_close(slots);
    json_decref(root);
    return rc;
}

/* In a store, the object that names the files is written last: what they are made of was checked
 * then, and is not fetched again for a list. */
static mr_code check_remote(const char *path, mr__train_state *state, mr_status *st)
{
    json_t *root = NULL;
    mr_code rc = mr__load_json(path, "state.json", &root, st);
    if (rc == MR_OK)
        rc = mr__read_state(root, state, st);
    json_decref(root);
    return rc;
}

/* Inspects a directory that may be a checkpoint. */
static void look_into(found *f, const char *path)
{
    mr_status st;
    mr__train_state state = {0};
    bool remote = mr__store_is_url(path);
    char *name = f->name;
    f->name = (char *)(uintptr_t)path;
    if ((remote ? mr__remote_saved_bytes(path, &f->info.bytes, NULL)
                : mr__each_name(path, add_size, f, NULL)) != MR_OK)
        f->info.bytes = 0;
    f->name = name;
    f->info.whole =
        (remote ? check_remote(path, &state, &st) : check_parts(path, &state, &st)) == MR_OK;
    if (f->info.whole) {
        f->info.epoch = state.epoch;
        f->info.step = state.step;
        f->info.loss = state.loss;
    } else
        snprintf(f->why, sizeof f->why, "%.255s", st.message);
    if (f->info.whole && *name == '.') {
        f->info.whole = false;
        snprintf(f->why, sizeof f->why, "it was being written");
    }
}

static mr_code add_found(listing *l, const char *name, const char *path, mr_status *st)
{
    MR_TRY(MR_GROW(l->all, l->capacity, l->n + 1, MAX_CHECKPOINTS, "checkpoints", st));
    found *f = &l->all[l->n];
    *f = (found){.name = mr_strdup(name)};
    if (!f->name)
        return mr_fail_memory(st, strlen(name), "a file name");
    l->n++;
    look_into(f, path);
    return MR_OK;
}

/* In a store. A checkpoint that was being written when a process was killed has no name. */
static mr_code add_remote(void *ctx, const char *name, mr_status *st)
{
    listing *l = ctx;
    if (strcmp(name, "checkpoint") == 0)
        return MR_OK;
    char *path = mr__path_in(l->directory, name), *files = NULL;
    if (!path)
        return mr_fail_memory(st, strlen(name), "a file name");
    mr_code rc = mr__find_saved(path, &files, st);
    if (rc == MR_OK && files)
        rc = add_found(l, name, files, st);
    mr_free(files);
    mr_free(path);
    return rc;
}

/* Hidden names are checkpoints being written; other directories are inspected. */
static mr_code add(void *ctx, const char *name, mr_status *st)
{
    listing *l = ctx;
    size_t n = strlen(name);
    bool partial = n > 9 && *name == '.' && strcmp(name + n - 8, ".partial") == 0;
    if (*name == '.' && !partial)
        return MR_OK;
    char *path = mr__path_in(l->directory, name);
    char *state = path ? mr__path_in(path, "training.json") : NULL;
    char *weights = path ? mr__path_in(path, "state.json") : NULL;
    mr_code rc = MR_OK;
    if (!path || !state || !weights)
        rc = mr_fail_memory(st, n, "a file name");
    bool is_one = rc == MR_OK && mr__is_directory(path) &&
                  (partial || mr__is_there(state) || mr__is_there(weights));
    if (is_one)
        rc = add_found(l, name, path, st);
    mr_free(path);
    mr_free(state);
    mr_free(weights);
    return rc;
}

static int by_step(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->info.step != y->info.step)
        return x->info.step < y->info.step ? -1 : 1;
    return strcmp(x->name, y->name);
}

static mr_code check_name(const char *directory, mr_status *st)
{
    return directory ? MR_OK : mr_fail(st, MR_INVALID_ARGUMENT, "the directory is NULL");
}

mr_code mr_checkpoint_finished(const char *directory, bool *finished, mr_status *st)
{
    MR_TRY(check_name(directory, st));
    char *path = mr__path_in(directory, "finished");
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr__look_there(path, finished, st);
    mr_free(path);
    return rc;
}

mr_code mr_checkpoint_list(const char *directory,
                           mr_code (*fn)(void *ctx, const mr_checkpoint_info *c, mr_status *st),
                           void *ctx, mr_status *st)
{
    listing l = {.directory = directory};
    MR_TRY(check_name(directory, st));
    mr_code rc = mr__each_name(directory, mr__store_is_url(directory) ? add_remote : add, &l, st);
    if (rc == MR_OK)
        rc = mr__latest_checkpoint(directory, &l.latest, st);
    if (l.n > 0)
        qsort(l.all, l.n, sizeof *l.all, by_step);
    for (size_t i = 0; i < l.n && rc == MR_OK; i++) {
        found *f = &l.all[i];
        f->info.name = f->name;
        f->info.why = f->why;
        f->info.latest = l.latest && strcmp(mr__name_in_path(l.latest), f->name) == 0;
        rc = fn(ctx, &f->info, st);
    }
    for (size_t i = 0; i < l.n; i++)
        mr_free(l.all[i].name);
    mr_free(l.all);
    mr_free(l.latest);
    return rc;
}
