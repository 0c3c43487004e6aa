/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/data_files.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/glob.h"
#include "pipeline/formats/shard_names.h"
#include "pipeline/formats/shards/shard_set_swap.h"
#include "pipeline/memory/alloc.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether path is the index of one of these sorted paths, so not a record file. */
static bool is_index(char *path, char *const *paths, size_t n)
{
    size_t stem = mr__index_stem(path);
    if (stem == 0)
        return false;
    path[stem] = '\0';
    bool found = bsearch(&path, paths, n, sizeof *paths, compare_paths);
    path[stem] = '.';
    return found;
}

/* A file that a writer of this library has not finished, or left when it was killed. */
static bool is_partial(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t size = strlen(name);
    return name[0] == '.' && size > 8 && strcmp(name + size - 8, ".partial") == 0;
}

mr_code mr_data_files(const char *const *patterns, size_t n_patterns, char ***paths,
                      size_t *n_paths, mr_status *st)
{
    char **found;
    size_t n, kept = 0;
    MR_TRY(mr_glob(patterns, n_patterns, &found, &n, st));
    mr_code rc = mr__shard_set_swap_check(found, n, st);
    if (rc != MR_OK) {
        mr_glob_free(found, n);
        return rc;
    }
    /* The paths kept so far are sorted, and F comes before F.idx. */
    for (size_t i = 0; i < n; i++)
        if (is_partial(found[i]) || is_index(found[i], found, kept))
            mr_free(found[i]);
        else
            found[kept++] = found[i];
    *paths = found;
    *n_paths = kept;
    if (kept > 0)
        return MR_OK;
    mr_glob_free(found, 0);
    return mr_fail(st, MR_NOT_FOUND,
                   "all files that match '%.200s' are unfinished files of a writer", patterns[0]);
}
