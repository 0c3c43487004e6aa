/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cuda/cuda_host.h"
#include <stdio.h>
#include "pipeline/memory/alloc.h"

static const mr_module_host *host;

void mr__cuda_host_set(const mr_module_host *h)
{
    host = h;
}

mr_code mr_fail(mr_status *st, mr_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    mr_code rc = host->failv(st, code, fmt, ap);
    va_end(ap);
    return rc;
}

void mr__cuda_log(mr_log_level level, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host->log(level, text);
}

mr_code mr_fail_memory(mr_status *st, size_t bytes, const char *what)
{
    return mr_fail(st, MR_RESOURCE_EXHAUSTED, "no memory for %s (%zu bytes)", what, bytes);
}

void *mr_calloc(size_t n, size_t bytes)
{
    return host->calloc(n, bytes);
}

void *mr_aligned_alloc(size_t alignment, size_t bytes)
{
    return host->aligned_alloc(alignment, bytes);
}

void mr_free(void *p)
{
    host->free(p);
}

const char *mr_device_name(const mr_device *d)
{
    return host->device_name(d);
}
