/* SPDX-License-Identifier: Apache-2.0 */
/* Class numbers among the features: rows of a table, and one-hot encodings. */
#include <string.h>
#include "trainer/device/cpu/operations.h"
#include "trainer/device/tensor.h"

static bool read_id(mr_dtype t, const void *ids, size_t i, size_t classes, size_t *id)
{
    double v = mr__value_as_double(t, ids, i);
    if (!(v >= 0 && v < (double)classes))
        return false;
    *id = (size_t)v;
    return true;
}

static void count_fault(mr_math_fault *f, uint64_t row, double value, size_t classes)
{
    f->count++;
    if (row >= f->row)
        return;
    f->row = row;
    f->label = value;
    f->classes = classes;
    f->is_feature = 1;
}

static void run_gather(void *args)
{
    const mr_math_gather *p = args;
    size_t id, bytes = p->width * sizeof *p->y;
    for (size_t i = 0; i < p->n; i++) {
        if (read_id(p->id_dtype, p->ids, i, p->classes, &id)) {
            memcpy(p->y + i * p->width, p->table + id * p->width, bytes);
            continue;
        }
        memset(p->y + i * p->width, 0, bytes);
        count_fault(p->fault, p->first_row + i / p->ids_per_row,
                    mr__value_as_double(p->id_dtype, p->ids, i), p->classes);
    }
}

static void run_gather_backward(void *args)
{
    const mr_math_gather_backward *p = args;
    size_t id;
    if (p->classes * p->width > 0)
        memset(p->dtable, 0, p->classes * p->width * sizeof *p->dtable);
    for (size_t i = 0; i < p->n; i++)
        if (read_id(p->id_dtype, p->ids, i, p->classes, &id))
            for (size_t j = 0; j < p->width; j++)
                p->dtable[id * p->width + j] += p->dy[i * p->width + j];
}

static void run_encode(void *args)
{
    const mr_math_encode *p = args;
    size_t id;
    if (p->rows * p->classes > 0)
        memset(p->y, 0, p->rows * p->classes * sizeof *p->y);
    for (size_t i = 0; i < p->rows * p->ids_per_row; i++) {
        size_t r = i / p->ids_per_row;
        if (!read_id(p->id_dtype, p->ids, i, p->classes, &id)) {
            count_fault(p->fault, p->first_row + r / p->per_row,
                        mr__value_as_double(p->id_dtype, p->ids, i), p->classes);
            continue;
        }
        float *y = &p->y[r * p->classes + id];
        *y = p->once ? 1 : *y + 1;
    }
}

MR__CPU_SUBMIT(gather)
MR__CPU_SUBMIT(gather_backward)
MR__CPU_SUBMIT(encode)
