/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/tensor.h"
#include <inttypes.h>
#include <stdio.h>

double mr__value_as_double(mr_dtype t, const void *data, size_t i)
{
    switch (t) {
    case MR_INT8:
        return ((const int8_t *)data)[i];
    case MR_INT16:
        return ((const int16_t *)data)[i];
    case MR_INT32:
        return ((const int32_t *)data)[i];
    case MR_INT64:
        return (double)((const int64_t *)data)[i];
    case MR_BOOL:
    case MR_UINT8:
        return ((const uint8_t *)data)[i];
    case MR_UINT16:
        return ((const uint16_t *)data)[i];
    case MR_UINT32:
        return ((const uint32_t *)data)[i];
    case MR_UINT64:
        return (double)((const uint64_t *)data)[i];
    case MR_FLOAT16:
        return mr_half_to_float(((const uint16_t *)data)[i]);
    case MR_BFLOAT16:
        return mr_bfloat_to_float(((const uint16_t *)data)[i]);
    case MR_FLOAT32:
        return ((const float *)data)[i];
    case MR_FLOAT64:
        return ((const double *)data)[i];
    default:
        return 0;
    }
}

void mr__shape_text(int rank, const int64_t *shape, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (at < size)
        snprintf(buf + at, size - at, "]");
}
