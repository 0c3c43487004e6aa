/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/killed_at.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/fault_calls.h"
#include "tests/harness.h"

static mr__system table;
static _Atomic int64_t left; /* calls until the end */

static bool dies(const char *call)
{
    (void)call;
    if (atomic_fetch_sub(&left, 1) == 1)
        kill(getpid(), SIGKILL);
    return false;
}

/* The first half of what is to be written is there when the process is killed. */
static ssize_t k_write(int fd, const void *p, size_t n)
{
    if (atomic_load(&left) == 1 && n > 1 && mr__system_real()->write(fd, p, n / 2) < 0)
        _exit(2);
    dies("write");
    return mr__system_real()->write(fd, p, n);
}

void killed_at_count(void)
{
    table = *mr__system_real();
    mr_fault_calls(&table, "open close fsync rename rename_exchange unlink rmdir mkdir", dies);
    table.write = k_write;
    mr__system_set(&table);
}

bool killed_at(int64_t n, void (*fn)(void *ctx), void *ctx)
{
    int how;
    atomic_store(&left, n);
    pid_t child = fork();
    if (child == 0) {
        fn(ctx);
        _exit(0);
    }
    mr_check(child > 0);
    mr_check(waitpid(child, &how, 0) == child);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        return true;
    mr_check(WIFEXITED(how));
    mr_eq_i64(WEXITSTATUS(how), 0);
    return false;
}
