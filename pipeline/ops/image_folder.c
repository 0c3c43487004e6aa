/* SPDX-License-Identifier: Apache-2.0 */
/* image_folder: images in folders, one folder per class.
 *
 *     dir/cat/1.jpg    {"image": bytes, "label": 0, "path": "dir/cat/1.jpg"}
 *     dir/dog/2.png    {"image": bytes, "label": 1, "path": "dir/dog/2.png"}
 *
 * The list of files is matched once for all iterators of the dataset, like the patterns of file
 * readers, and a position contains its fingerprint. Folders are numbered in the order of their
 * names, whether or not they contain images, except those whose name begins with a dot. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/files/glob.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/fnv.h"
#include "pipeline/formats/file_contents.h"
#include "pipeline/ops/sources.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/sources/file_list.h"

struct params {
    char *dir;
    mr_image_folder_opts o;
};

struct image {
    uint32_t file, label; /* file: in the list */
};

struct state {
    mr_bytes pattern; /* of all entries of the folders; owned */
    mr__file_list *list;
    char **folders; /* "dir/name/.", by name */
    size_t n_folders;
    struct image *images;
    size_t n, at;
    bool failed;
};

static void drop(struct state *s)
{
    mr__file_list_unref(s->list);
    mr_glob_free(s->folders, s->n_folders);
    mr_free(s->images);
    s->list = NULL;
    s->folders = NULL;
    s->images = NULL;
    s->n_folders = s->n = 0;
}

/* dir, escaped so that it contains no pattern characters, followed by the rest. */
static mr_code pattern_of(const char *dir, const char *rest, char **out, mr_status *st)
{
    size_t n = strlen(dir), k = 0;
    char *text = mr_malloc(2 * n + strlen(rest) + 2);
    if (!text)
        return mr_fail_memory(st, 2 * n, "a pattern");
    for (size_t i = 0; i < n; i++) {
        if (strchr("*?[\\", dir[i]))
            text[k++] = '\\';
        text[k++] = dir[i];
    }
    if (n && dir[n - 1] != '/')
        text[k++] = '/';
    strcpy(text + k, rest);
    *out = text;
    return MR_OK;
}

/* The name of the folder in a path "dir/name/...": its last part but one. */
static const char *folder_of(const char *path, size_t *n)
{
    const char *end = strrchr(path, '/'), *begin = end;
    while (begin > path && begin[-1] != '/')
        begin--;
    *n = (size_t)(end - begin);
    return begin;
}

static int compare_names(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_folder(const void *a, const void *b)
{
    size_t n_a, n_b;
    const char *x = folder_of(*(char *const *)a, &n_a), *y = folder_of(*(char *const *)b, &n_b);
    return compare_names(x, n_a, y, n_b);
}

static mr_code list_folders(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    char *pattern = NULL, *whole = NULL;
    mr_status why;
    MR_TRY(pattern_of(p->dir, "[!.]*/.", &pattern, st));
    mr_code rc = mr_iter_file_path(it, pattern, &whole, &why);
    if (rc == MR_OK)
        rc = mr_glob((const char *const *)&whole, 1, &s->folders, &s->n_folders, &why);
    if (rc != MR_OK && st)
        *st = why;
    if (rc == MR_NOT_FOUND && !why.sys_errno)
        rc = mr_fail(st, rc,
                     "no folders of images in %s; check the path, and that images are in folders "
                     "named after their labels",
                     p->dir);
    mr_free(pattern);
    mr_free(whole);
    MR_TRY(rc);
    size_t kept = 0, n;
    for (size_t i = 0; i < s->n_folders; i++)
        if (folder_of(s->folders[i], &n)[0] != '.')
            s->folders[kept++] = s->folders[i];
        else
            mr_free(s->folders[i]);
    s->n_folders = kept;
    if (kept)
        qsort(s->folders, kept, sizeof *s->folders, by_folder);
    return MR_OK;
}

/* -1: in none of the folders. */
static int64_t label_of(const struct state *s, const char *path)
{
    size_t n, n_other, low = 0, high = s->n_folders;
    const char *name = folder_of(path, &n);
    while (low < high) {
        size_t middle = (low + high) / 2;
        const char *other = folder_of(s->folders[middle], &n_other);
        int order = compare_names(name, n, other, n_other);
        if (order == 0)
            return (int64_t)middle;
        *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
    }
    return -1;
}

static bool is_image(const struct params *p, const char *path)
{
    static const char *const usual[] = {"jpg", "jpeg", "png"};
    const char *name = strrchr(path, '/') + 1, *point = strrchr(name, '.');
    if (name[0] == '.' || !point)
        return false;
    for (size_t i = 0; i < 3 && !p->o.extensions.n; i++)
        if (strcasecmp(point + 1, usual[i]) == 0)
            return true;
    for (size_t i = 0; i < p->o.extensions.n; i++)
        if (strcasecmp(point + 1, p->o.extensions.v[i].data) == 0)
            return true;
    return false;
}

static mr_code find_images(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->images = mr_calloc(s->list->n + 1, sizeof *s->images);
    if (!s->images)
        return mr_fail_memory(st, s->list->n * sizeof *s->images, "a list of images");
    for (size_t i = 0; i < s->list->n; i++) {
        int64_t label = is_image(p, s->list->paths[i]) ? label_of(s, s->list->paths[i]) : -1;
        if (label >= 0)
            s->images[s->n++] = (struct image){(uint32_t)i, (uint32_t)label};
    }
    if (s->n)
        return MR_OK;
    return mr_fail(st, MR_NOT_FOUND,
                   "no images in the folders of %s; extensions selects which files are images",
                   p->dir);
}

static mr_strs names_of(struct state *s)
{
    return (mr_strs){.v = &s->pattern, .n = 1};
}

/* Lists folders and files. again: after a restore; the files must be those of the position. */
static mr_code list_all(mr_iter *it, bool again, mr_status *st)
{
    struct state *s = it->state;
    const mr_strs names = names_of(s);
    drop(s);
    MR_TRY(list_folders(it, st));
    MR_TRY(again ? mr__file_list_rematch(it, &names, true, &s->list, st)
                 : mr__file_list_match(it, &names, true, &s->list, st));
    return s->list ? find_images(it, st) : MR_OK;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    char *pattern = NULL;
    MR_TRY(pattern_of(p->dir, "[!.]*/*", &pattern, st));
    s->pattern = (mr_bytes){pattern, strlen(pattern)};
    /* The first next reports a failure, because a restore may precede it. */
    if (list_all(it, false, NULL) != MR_OK)
        drop(s);
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    drop(s);
    mr_free((char *)(uintptr_t)s->pattern.data);
}

static mr_code read_file(mr_iter *it, const char *path, mr_array *out, mr_status *st)
{
    mr_reader *reader = NULL;
    char *whole = NULL;
    const mr_file_opts o = {.no_uring = mr_iter_no_uring(it),
                            .cancel = mr_iter_cancel(it),
                            .on_read = mr_iter_opts(it)->on_read,
                            .on_read_ctx = mr_iter_opts(it)->on_read_ctx};
    mr_code rc = mr_iter_file_path(it, path, &whole, st);
    if (rc == MR_OK)
        rc = mr_reader_open(&reader, &mr__format_contents, whole, &o, st);
    if (rc == MR_OK)
        rc = mr_reader_read(reader, 1, SIZE_MAX, out, st);
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    if (rc != MR_OK)
        mr_iter_fail_open(it, rc, st);
    mr_reader_close(reader);
    mr_free(whole);
    return rc;
}

static mr_code prepare(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    if (s->list)
        return MR_OK;
    mr_code rc = list_all(it, false, st);
    if (rc != MR_OK) {
        mr_iter_fail_given(it, rc, st);
        drop(s);
    }
    return rc;
}

/* A file that cannot be read is an error in its place; one that is missing or forbidden ends the
 * pipeline. */
static mr_code read_image(mr_iter *it, uint64_t number, mr_block *out, mr_status *st)
{
    const struct state *s = it->state;
    const struct image *image = &s->images[number];
    const char *path = s->list->paths[image->file];
    MR_TRY(mr_block_prepare(out, 3, st));
    MR_TRY(read_file(it, path, &out->columns[0], st));
    MR_TRY(mr_array_alloc(&out->columns[1], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[1].data = image->label;
    MR_TRY(mr__file_path_column(path, &out->columns[2], st));
    out->rows = 1;
    MR_TRY(mr_iter_set_identities(it, out, image->file, 0, st));
    return mr_iter_name_file(it, out->ids.ids, path, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    (void)want;
    if (s->failed)
        return MR_END;
    mr_code rc = prepare(it, st);
    s->failed = rc != MR_OK && !mr_status_is_of_no_element(st);
    MR_TRY(rc);
    if (s->at >= s->n)
        return MR_END;
    rc = read_image(it, s->at, out, st);
    s->at += rc != MR_CANCELLED && !(rc != MR_OK && mr_status_is_of_no_element(st));
    return rc;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    mr_status unused;
    if (s->failed || prepare(it, &unused) != MR_OK) /* the next pull reports it */
        return MR_OK;
    (void)st;
    *skipped = n < s->n - s->at ? n : s->n - s->at;
    s->at += (size_t)*skipped;
    return MR_OK;
}

/* ---- by number ---- */

static mr_code count(mr_iter *it, uint64_t *n, mr_status *st)
{
    MR_TRY(prepare(it, st));
    *n = ((const struct state *)it->state)->n;
    return MR_OK;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    (void)n;
    return read_image(it, index[0], out, st);
}

static uint64_t fingerprint(const struct state *s)
{
    uint64_t hash = MR__FNV_BASIS;
    for (size_t i = 0, n; i < s->n_folders; i++) {
        const char *name = folder_of(s->folders[i], &n);
        hash = mr__fnv1a(hash, name, n + 1);
    }
    return hash;
}

/* Position: images delivered, failed, fingerprint of the folders. */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->at, st));
    MR_TRY(mr_state_put_u64(w, s->failed, st));
    return mr_state_put_u64(w, s->list ? fingerprint(s) : 0, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t at, failed, folders;
    MR_TRY(mr_state_get_u64(r, &at, st));
    MR_TRY(mr_state_get_u64(r, &failed, st));
    MR_TRY(mr_state_get_u64(r, &folders, st));
    s->failed = failed;
    s->at = (size_t)at;
    if (failed > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: invalid index of an image");
    if (!folders) { /* none was listed */
        drop(s);
        return at ? mr_fail(st, MR_INVALID_ARGUMENT,
                            "damaged position: index of an image without a list")
                  : MR_OK;
    }
    MR_TRY(list_all(it, true, st));
    if (!s->list || fingerprint(s) != folders || at > s->n)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the folders in %s are not those of when the position was saved", p->dir);
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    static const char *const names[] = {"image", "label", "path"};
    mr_spec *parts[] = {mr_spec_scalar(MR_STRING), mr_spec_scalar(MR_INT64),
                        mr_spec_scalar(MR_STRING)};
    (void)self;
    (void)params;
    return mr__inferred(mr_spec_record(names, parts, 3), out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    const struct params *p = params;
    char *pattern = NULL;
    mr__file_list *l = NULL;
    int64_t n = 0;
    (void)self;
    (void)in;
    if (pattern_of(p->dir, "[!.]*/*", &pattern, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    mr_bytes name = {pattern, strlen(pattern)};
    if (mr__file_list_look(&(const mr_strs){.v = &name, .n = 1}, &l, NULL) != MR_OK)
        l = NULL;
    for (size_t i = 0; l && i < l->n; i++)
        n += is_image(p, l->paths[i]);
    mr__file_list_unref(l);
    mr_free(pattern);
    return n > 0 ? n : MR_UNKNOWN_COUNT; /* a pass without images is an error */
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    if (!p->dir || !*p->dir)
        return mr_fail(st, MR_INVALID_ARGUMENT, "dir must be the name of a folder");
    for (size_t i = 0; i < p->o.extensions.n; i++)
        if (!p->o.extensions.v[i].size || strchr(p->o.extensions.v[i].data, '.'))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "extensions are written without the dot, such as \"jpg\"");
    return MR_OK;
}

static const mr_param table[] = {
    MR_ARG(struct params, dir, .doc = "The folder with a subfolder for each class."),
    MR_OPT(struct params, extensions,
           .doc = "The extensions of images, in lower or upper case; default: \"jpg\", \"jpeg\" "
                  "and \"png\"."),
    {0}};

const mr_op mr_op_image_folder = {
    .abi = MR_ABI_VERSION,
    .name = "image_folder",
    .doc = "Images labelled by their folders: {\"image\": bytes, \"label\": int64, \"path\": "
           "bytes}.",
    .example = "image_folder(\"pets\").map(x => (x[\"image\"], x[\"label\"]))",
    .order_doc = "by folder, then by name",
    .memory_doc = "an image",
    .state_doc = "which image",
    .count_doc = "the number of images",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_OUTSIDE | MR_OP_LATE_COUNT | MR_OP_FILE_ELEMENTS,
    .check = check,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
    .skip = skip,
    .count = count,
    .at = at,
};

mr_dataset *mr_image_folder(const char *dir, const mr_image_folder_opts *opts)
{
    struct params p = {.dir = (char *)(uintptr_t)dir};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_image_folder, &p, NULL, 0);
}
