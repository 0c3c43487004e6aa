/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/ledger/ledger_names.h"

#include <string.h>

#include "pipeline/memory/alloc.h"

/* Index of the name, or the index where it would be inserted. */
static size_t place_of(const mr__ledger_names *x, uint64_t source, uint64_t file)
{
    size_t low = 0, high = x->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const mr__ledger_file *f = &x->v[mid];
        if (f->source < source || (f->source == source && f->file < file))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const char *mr__ledger_names_find(const mr__ledger_names *x, uint64_t source, uint64_t file)
{
    size_t i = place_of(x, source, file);
    bool found = i < x->n && x->v[i].source == source && x->v[i].file == file;
    return found ? x->v[i].name : NULL;
}

mr_code mr__ledger_names_add(mr__ledger_names *x, uint64_t source, uint64_t file, const char *name,
                             size_t size, const mr__ledger_file **added, mr_status *st)
{
    size_t at = place_of(x, source, file);
    MR_TRY(
        MR_GROW(x->v, x->capacity, x->n + 1, SIZE_MAX / sizeof *x->v, "the names of a ledger", st));
    char *copy = mr_malloc(size + 1);
    if (!copy)
        return mr_fail_memory(st, size, "a name in a ledger");
    memcpy(copy, name, size);
    copy[size] = 0;
    memmove(&x->v[at + 1], &x->v[at], (x->n - at) * sizeof *x->v);
    x->v[at] = (mr__ledger_file){source, file, copy};
    x->n++;
    *added = &x->v[at];
    return MR_OK;
}

void mr__ledger_names_reset(mr__ledger_names *x)
{
    for (size_t i = 0; i < x->n; i++)
        mr_free(x->v[i].name);
    mr_free(x->v);
    *x = (mr__ledger_names){0};
}
