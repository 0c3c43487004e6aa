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

/* Reads the file called name into *z; its bytes are not copied again. */
static mr_code read_one(const mr_bytes *name, mr_cancel *cancel, mr_array *out, mr_bytes *z,
                        mr_status *st)
{
    size_t size;
    mr_buffer *b;
    if (!name->size || memchr(name->data, 0, name->size))
        return mr_fail(st, MR_INVALID_ARGUMENT, "read_file: a path is empty or has a NUL byte");
    char *given = mr_strndup(name->data, name->size), *path = NULL;
    mr_code rc = given ? mr__file_name(given, &path, st) : mr_fail_memory(st, name->size, "a path");
    if (rc == MR_OK)
        rc = mr__file_read_named(path, &(mr_file_read_opts){.cancel = cancel}, &b, &size, st);
    mr_free(given);
    mr_free(path);
    MR_TRY(rc);
    *z = (mr_bytes){mr_buffer_data(b), size};
    rc = mr_buffer_hold(out->owner, b, st);
    mr_buffer_unref(b);
    return rc;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    size_t k = mr_array_row_values(x), n = r->rows * k;
    MR_TRY(mr_array_alloc(out, MR_STRING, x->rank, x->shape, x->rows, st));
    mr_bytes *z = out->data;
    for (size_t i = 0; i < n; i++) {
        mr_status why;
        z[i] = (mr_bytes){NULL, 0};
        mr_code rc = read_one((const mr_bytes *)x->data + i, r->errors->cancel, out, &z[i], &why);
        if (rc == MR_RESOURCE_EXHAUSTED || rc == MR_CANCELLED) {
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
    return MR_OK;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "path", "Paths of files; \"-\" is standard input."), {0}};
const mr_function mr_function_read_file = {
    .abi = MR_ABI_VERSION,
    .name = "read_file",
    .doc = "The bytes of each file.",
    .example = "list_files(\"train-*.tfrecord\").map(f => length(read_file(f)))",
    .params = table,
    .type = type,
    .run = run,
};
