/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/streams/file_lists_internal.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/files/glob.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/file_list_internal.h"

#define ALL_NAMES (-2) /* buffer size of a shuffle: its whole input */

/* ---- matching ---- */

MR_API void mr__free_files(char **files, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mr_free(files[i]);
    mr_free(files);
}

MR_API mr_code mr__match_files(const char *directory, const char *pattern, char ***files, size_t *n,
                               mr_status *st)
{
    size_t before = directory && *pattern != '/' ? strlen(directory) + 1 : 0, found = 0, k = 0;
    char **paths = NULL;
    mr_status why;
    *files = NULL;
    *n = 0;
    char *whole = before ? mr_strf("%s/%s", directory, pattern) : mr_strdup(pattern);
    if (!whole)
        return mr_fail_memory(st, before, "a file pattern");
    mr_code rc = mr_data_files(&(const char *){whole}, 1, &paths, &found, &why);
    mr_free(whole);
    if (rc == MR_NOT_FOUND && !why.sys_errno) /* else a file that matches leads nowhere */
        return MR_OK;
    if (rc != MR_OK) {
        *st = why;
        return rc;
    }
    char **own = mr_calloc(found ? found : 1, sizeof *own);
    for (; own && k < found; k++)
        if (!(own[k] = mr_strdup(paths[k] + before)))
            break;
    mr_glob_free(paths, found);
    if (!own || k < found) {
        if (own)
            mr__free_files(own, k);
        return mr_fail_memory(st, found, "a list of files");
    }
    *files = own;
    *n = found;
    return MR_OK;
}

/* ---- replacing ---- */

typedef struct listing {
    const mr__file_lists *lists;
    bool data; /* sources of names are replaced; else readers' names are */
    mr_status status;
} listing;

MR_API const mr_param *mr__file_names_of(const mr_dataset *ds, bool *all)
{
    const mr_op *op = mr_dataset_op(ds);
    *all = op->props & MR_OP_FILE_NAMES;
    if (*all || op->role == MR_ROLE_FILES)
        for (const mr_param *p = op->params; p && p->name; p++)
            if (p->type == MR_PT_STRS && (*all || (p->flags & MR_P_PATTERN)))
                return p;
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* *out = names, with each group of patterns replaced by its matches, sorted together: a new array
 * of borrowed names. */
static mr_code names_of(listing *l, const mr_strs *names, bool all, const char ***out, size_t *n,
                        mr_status *st)
{
    const char **v = NULL;
    size_t capacity = 0, have = 0;
    mr_code rc = MR_OK;
    for (size_t i = 0; i < names->n && rc == MR_OK;) {
        size_t first = have, start = i;
        for (; i < names->n && rc == MR_OK && (all || mr__file_is_pattern(names, i)); i++) {
            char *const *files = NULL;
            size_t more = 0;
            rc = l->lists->find(l->lists->ctx, names->v[i].data, &files, &more, st);
            if (rc == MR_OK)
                rc = MR_GROW(v, capacity, have + more, 1 << 28, "a list of files", st);
            for (size_t k = 0; rc == MR_OK && k < more; k++)
                v[have++] = files[k];
        }
        if (have > first)
            qsort(v + first, have - first, sizeof *v, compare_names);
        if (rc == MR_OK && i == start) {
            rc = MR_GROW(v, capacity, have + 1, 1 << 28, "a list of files", st);
            if (rc == MR_OK)
                v[have++] = names->v[i].data;
            i++;
        }
    }
    if (rc != MR_OK) {
        mr_free((void *)v);
        return rc;
    }
    *out = v;
    *n = have;
    return MR_OK;
}

/* The reader ds with these names, none of which is a pattern. */
static mr_dataset *with_names(mr_dataset *ds, const mr_param *p, const char **v, size_t n)
{
    mr_status st;
    mr_value *items = mr_calloc(n ? n : 1, sizeof *items);
    if (!items) {
        mr_fail_memory(&st, n * sizeof *items, "file names");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < n; i++)
        items[i] = (mr_value){
            .kind = MR_V_STRING, .computed = true, .s = (char *)v[i], .size = strlen(v[i])};
    const mr_value list = {.kind = MR_V_LIST, .items = items, .n = n};
    mr_dataset *made = mr_dataset_with_param(ds, p->name, &list);
    mr_free(items);
    return made;
}

/* The names as a dataset, shuffled if ds shuffles them. */
static mr_dataset *names_as_data(mr_dataset *ds, const char **v, size_t n)
{
    mr_dataset *names = mr_from_strings(v, n);
    mr_value on = {0}, seed = {0};
    mr_status st;
    for (const mr_param *p = mr_dataset_op(ds)->params; p && p->name; p++)
        if ((p->flags & MR_P_SHUFFLES) && mr_dataset_param_named(ds, p->name, &on, &st) == MR_OK &&
            on.kind == MR_V_BOOL && on.i) {
            if (mr_dataset_param_named(ds, "seed", &seed, &st) != MR_OK) {
                mr_dataset_unref(names);
                return mr_dataset_fail(&st);
            }
            const mr_shuffle_opts o = {.seed = seed.i, .has_seed = seed.kind == MR_V_INT};
            names = mr_shuffle(names, ALL_NAMES, &o);
            mr__dataset_set_origin(names, mr__dataset_origin(ds));
            break;
        }
    mr_value_reset(&on);
    mr_value_reset(&seed);
    return names;
}

static mr_dataset *list_node(void *ctx, mr_dataset *node)
{
    listing *l = ctx;
    bool all, any = false;
    const char **v = NULL;
    size_t n = 0;
    const mr_param *p = mr__file_names_of(node, &all);
    const mr_strs *names =
        p ? (const mr_strs *)((const char *)mr_dataset_params(node) + p->at) : NULL;
    for (size_t i = 0; p && all == l->data && i < names->n; i++)
        any = any || all || mr__file_is_pattern(names, i);
    if (!any)
        return node;
    mr_dataset *made;
    if (names_of(l, names, all, &v, &n, &l->status) != MR_OK)
        made = mr_dataset_fail(&l->status);
    else
        made = all ? names_as_data(node, v, n) : with_names(node, p, v, n);
    mr_free((void *)v);
    mr_dataset_unref(node);
    return made;
}

MR_API mr_code mr__put_file_lists(const mr__file_lists *lists, bool data, mr_dataset *ds,
                                  mr_dataset **out, mr_status *st)
{
    listing l = {.lists = lists, .data = data};
    mr_dataset *made = mr_dataset_transform(ds, list_node, &l);
    mr_dataset_unref(ds);
    mr_code rc = mr_dataset_check(made, st);
    if (rc == MR_OK)
        *out = made;
    else
        mr_dataset_unref(made);
    return rc;
}

MR_API int64_t mr__count_file_names(void *ctx, const mr_dataset *ds)
{
    listing l = {.lists = ctx};
    bool all;
    size_t n = 0;
    const char **v = NULL;
    const mr_param *p = mr__file_names_of(ds, &all);
    if (!p || names_of(&l, (const mr_strs *)((const char *)mr_dataset_params(ds) + p->at), all, &v,
                       &n, &l.status) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_free((void *)v);
    return (int64_t)n;
}
