/* SPDX-License-Identifier: Apache-2.0 */
/* read_file(path): the contents of files. */
#include <string.h>

#include "pipeline/files/file_name.h"
#include "pipeline/files/whole_file.h"
#include "pipeline/functions/compiler/typed_tree.h"

static mr_code type(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = *c->in[0];
    return MR_OK;
}

/* *out = the path to open for `name`, NUL-terminated. */
static mr_code path_of(const mr_bytes *name, mr_buffer **out, mr_status *st)
{
    char *given = mr_strndup(name->data, name->size), *path = NULL;
    mr_code rc = given ? mr__file_name(given, &path, st) : mr_fail_memory(st, name->size, "a path");
    if (rc == MR_OK)
        rc = mr_buffer_alloc(out, strlen(path) + 1, st);
    if (rc == MR_OK)
        strcpy(mr_buffer_data(*out), path);
    mr_free(given);
    mr_free(path);
    return rc;
}

/* Reads the file called name into *z; its bytes are not copied again. Errors in them name it. */
static mr_code read_one(const mr_bytes *name, mr_cancel *cancel, mr_array *out, mr_bytes *z,
                        mr_status *st)
{
    size_t size;
    mr_buffer *b;
    if (!name->size || memchr(name->data, 0, name->size))
        return mr_fail(st, MR_INVALID_ARGUMENT, "read_file: a path is empty or has a NUL byte");
    mr_buffer *path;
    MR_TRY(path_of(name, &path, st));
    mr_code rc = mr__file_read_named(mr_buffer_data(path), &(mr_file_read_opts){.cancel = cancel},
                                     &b, &size, st);
    if (rc == MR_OK) {
        const mr_origin o = {.path = path, .at = mr_buffer_data(b), .offset = -1, .record = -1};
        *z = (mr_bytes){mr_buffer_data(b), size};
        mr_buffer_set_origin(b, &o);
        rc = mr_buffer_hold(out->owner, b, st);
        mr_buffer_unref(b);
    }
    mr_buffer_unref(path);
    return rc;
}

/* A path that the function contains is read once for all rows; if that fails, none is at fault. */
static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    bool given = r->constant[0];
    size_t k = mr_array_row_values(x), n = x->rows * k;
    MR_TRY(mr_array_alloc(out, MR_STRING, x->rank, x->shape, x->rows, st));
    mr_bytes *z = out->data;
    for (size_t i = 0; i < n; i++) {
        mr_status why;
        z[i] = (mr_bytes){NULL, 0};
        mr_code rc = read_one((const mr_bytes *)x->data + i, r->errors->cancel, out, &z[i], &why);
        if (rc != MR_OK && rc != MR_CANCELLED && given && !mr_status_is_of_no_element(&why)) {
            mr__rows_name_place(r, &why);
            mr_status_of_no_element(&why);
        }
        if (rc == MR_CANCELLED || (rc != MR_OK && mr_status_is_of_no_element(&why))) {
            if (st)
                *st = why;
            mr_array_reset(out);
            return rc;
        }
        if (rc != MR_OK) {
            z[i] = (mr_bytes){NULL, 0};
            mr_row_fail_at(r, i / k, 0, i % k, why.code, "%s", why.message);
        }
    }
    return given && r->rows != 1 ? mr__repeat_row(out, r->rows, st) : MR_OK;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "path", "Paths of files; \"-\" is standard input."), {0}};
const mr_function mr_function_read_file = {
    .abi = MR_ABI_VERSION,
    .name = "read_file",
    .doc = "The bytes of each file.",
    .example = "list_files(\"train-*.tfrecord\").map(f => length(read_file(f)))",
    .params = table,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_READS,
    .type = type,
    .run = run,
};
