/* SPDX-License-Identifier: Apache-2.0 */
/* The checker checked: what the loops of tests/fault.h promise. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "pipeline/system/system.h"
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(every_allocation_fails_once_and_the_loop_ends)
{
    int runs = 0, failed = 0;
    mr_fault_each_allocation(n)
    {
        void *a = mr_malloc(8), *b = a ? mr_calloc(2, 8) : NULL, *c = b ? mr_strdup("c") : NULL;
        runs++;
        failed += !c;
        mr_check(mr_fault_seen() == !c);
        mr_free(c);
        mr_free(b);
        mr_free(a);
    }
    mr_eq_i64(runs, 5); /* none, three faults, and the run that saw none */
    mr_eq_i64(failed, 3);
}

MR_TEST(a_persistent_fault_goes_on)
{
    mr_fault_each(n, MR_FAULT_ALLOCATION, 0, true)
    {
        void *a = mr_malloc(8), *b = mr_malloc(8);
        mr_check(n != 1 || (!a && !b));
        mr_check(n != 2 || (a && !b));
        mr_free(a);
        mr_free(b);
    }
}

MR_TEST(system_calls_fail_with_the_chosen_error)
{
    char text[4] = "abc";
    const char *path = mr_test_path("file");
    int failed = 0;
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOSPC, false)
    {
        int fd = mr__sys->open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
        bool ok = fd >= 0 && mr__sys->write(fd, text, 3) == 3 && mr__sys->fsync(fd) == 0;
        if (!ok)
            mr_eq_i64(errno, ENOSPC);
        if (fd >= 0 && mr__sys->close(fd) < 0)
            ok = false;
        mr_check(mr_fault_seen() == !ok);
        failed += !ok;
    }
    mr_check(failed == 4);
}

MR_TEST(short_reads_give_some_bytes_in_order)
{
    char text[200], back[200];
    memset(text, 'x', sizeof text);
    mr_fault_short_reads(mr_test_seed());
    int fd = mr__sys->open(mr_test_path("file"), O_CREAT | O_RDWR, 0600), calls = 0;
    mr_eq_i64(mr__sys->write(fd, text, sizeof text), sizeof text);
    for (size_t at = 0; at < sizeof back; calls++) {
        ssize_t n = mr__sys->pread(fd, back + at, sizeof back - at, (off_t)at);
        mr_check(n > 0);
        at += (size_t)n;
    }
    mr_eq_mem(back, text, sizeof text);
    mr_check(calls > 1);
    mr_eq_i64(mr__sys->close(fd), 0);
    mr_eq_i64(mr_fault_open_files(), 0);
}
