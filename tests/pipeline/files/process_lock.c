/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that one process at a time has. */
#include "pipeline/files/process_lock.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static mr_status st;

MR_TEST(one_at_a_time_has_it)
{
    mr_process_lock *first, *second = NULL;
    const char *path = mr_test_path("lock");
    mr_ok(mr_process_lock_take(&first, path, &st), &st);
    mr_code_is(mr_process_lock_take(&second, path, &st), MR_UNAVAILABLE, &st);
    mr_eq_str(st.file, path);
    mr_check(!second);
    mr_process_lock_release(first);
    mr_check(access(path, F_OK) != 0);
    mr_ok(mr_process_lock_take(&second, path, &st), &st);
    mr_process_lock_release(second);
    mr_process_lock_release(NULL);
}

MR_TEST(it_ends_with_its_process)
{
    mr_process_lock *l;
    const char *path = mr_test_path("lock");
    int status, ends[2];
    char byte;
    mr_check(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* if the test fails */
        if (mr_process_lock_take(&l, path, NULL) != MR_OK || write(ends[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    mr_check(child > 0 && read(ends[0], &byte, 1) == 1);
    mr_code_is(mr_process_lock_take(&l, path, &st), MR_UNAVAILABLE, &st);
    mr_check(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    mr_check(access(path, F_OK) == 0); /* it locks nothing */
    mr_ok(mr_process_lock_take(&l, path, &st), &st);
    mr_process_lock_release(l);
}

MR_TEST(other_files_are_left_alone)
{
    mr_process_lock *l;
    mr_code_is(mr_process_lock_take(&l, mr_test_file("full", "text"), &st), MR_ALREADY_EXISTS, &st);
    mr_check(mkdir(mr_test_path("dir"), 0777) == 0);
    mr_code_is(mr_process_lock_take(&l, mr_test_path("dir"), &st), MR_ALREADY_EXISTS, &st);
    mr_code_is(mr_process_lock_take(&l, mr_test_path("no/such"), &st), MR_NOT_FOUND, &st);
}

MR_TEST(memory_and_system_calls_may_fail)
{
    const char *path = mr_test_path("lock");
    mr_fault_each_allocation(n)
    {
        mr_process_lock *l = NULL;
        mr_fault_expect(mr_process_lock_take(&l, path, &st), &st);
        mr_process_lock_release(l);
    }
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOSPC, false)
    {
        mr_process_lock *l = NULL;
        mr_code rc = mr_process_lock_take(&l, path, &st);
        mr_fault_off();
        mr_fault_expect(rc, &st);
        mr_process_lock_release(l);
    }
}
