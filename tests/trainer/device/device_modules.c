/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/device_modules.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "trainer/device/device_modules_impl.h"

MR_ONE_THREAD;

static mr_status st;

MR_TEST(files_that_are_no_modules_are_refused)
{
    FILE *f = fopen(mr_test_path("text.so"), "w");
    fputs("not a shared object\n", f);
    fclose(f);
    mr_code_is(mr_device_module_load("/nowhere/millrace-cuda.so", &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "/nowhere/millrace-cuda.so");
    mr_code_is(mr_device_module_load(mr_test_path("text.so"), &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_device_module_load("libz.so.1", &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "libz.so.1 is not a device module");
}

static void note_why(void *ctx, const char *kind, size_t n, const char *why)
{
    if (strcmp(kind, "cuda") == 0)
        snprintf(ctx, 256, "%zu %s", n, why);
}

/* Without the module, and where it cannot be opened, everything else works, and says why. */
MR_TEST(a_kind_whose_module_is_missing_has_a_reason)
{
    char seen[256] = "";
    mr_device *d = NULL;
    setenv("MILLRACE_CUDA_MODULE", "/nowhere/millrace-cuda.so", 1);
    mr_device_each(note_why, seen);
    mr_has_str(seen, "0 the module cannot be opened: /nowhere/millrace-cuda.so");
    mr_code_is(mr_device_open(&d, "cuda:0", &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "cuda:0");
    mr_has_str(st.message, "/nowhere/millrace-cuda.so");
    mr_check(d == NULL);
    mr_ok(mr_device_open(&d, "cpu:0", &st), &st);
    mr_device_close(d);
}
