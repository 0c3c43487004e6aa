/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an expression. What parses prints, and its print is a fixed point; a graph that can
 * be built prints as a text that builds the same graph. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/graph/dataset.h"
#include "pipeline/params/expr.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *printed(const char *text, size_t size)
{
    const mr_expr *e = NULL;
    char *out = NULL;
    if (mr_expr_parse(text, size, &e, NULL) != MR_OK)
        return NULL;
    if (mr_expr_print(e, &out, NULL) != MR_OK)
        out = NULL; /* its text is longer than the parser takes */
    mr_expr_unref(e);
    return out;
}

static char *built(const char *text, size_t size)
{
    mr_dataset *ds = NULL;
    char *out = NULL;
    mr_status st;
    if (mr_dataset_from_text(text, size, NULL, &ds, &st) != MR_OK)
        return NULL;
    if (mr_dataset_to_text(ds, &out, NULL) != MR_OK)
        out = NULL;
    mr_dataset_unref(ds);
    return out;
}

static void check_fixed(char *(*through)(const char *, size_t), const char *text, size_t size)
{
    char *once = through(text, size);
    if (!once)
        return;
    char *twice = through(once, strlen(once));
    if (!twice || strcmp(once, twice) != 0)
        abort();
    mr_free(once);
    mr_free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    small_memory();
    check_fixed(printed, (const char *)data, size);
    check_fixed(built, (const char *)data, size);
    return 0;
}
