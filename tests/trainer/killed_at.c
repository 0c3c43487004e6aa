/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/killed_at.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pipeline/system.h"
#include "tests/harness.h"

static mr__system table;
static _Atomic int64_t left; /* calls until the end */

static void count(void)
{
    if (atomic_fetch_sub(&left, 1) == 1)
        kill(getpid(), SIGKILL);
}

static int k_open(const char *path, int flags, mode_t mode)
{
    count();
    return mr__system_real()->open(path, flags, mode);
}

static int k_close(int fd)
{
    count();
    return mr__system_real()->close(fd);
}

/* The first half of what is to be written is there when the process is killed. */
static ssize_t k_write(int fd, const void *p, size_t n)
{
    if (atomic_load(&left) == 1 && n > 1 && mr__system_real()->write(fd, p, n / 2) < 0)
        _exit(2);
    count();
    return mr__system_real()->write(fd, p, n);
}

static int k_fsync(int fd)
{
    count();
    return mr__system_real()->fsync(fd);
}

static int k_rename(const char *from, const char *to)
{
    count();
    return mr__system_real()->rename(from, to);
}

static int k_exchange(const char *a, const char *b)
{
    count();
    return mr__system_real()->rename_exchange(a, b);
}

static int k_unlink(const char *path)
{
    count();
    return mr__system_real()->unlink(path);
}

static int k_rmdir(const char *path)
{
    count();
    return mr__system_real()->rmdir(path);
}

static int k_mkdir(const char *path, mode_t mode)
{
    count();
    return mr__system_real()->mkdir(path, mode);
}

void killed_at_count(void)
{
    table = *mr__system_real();
    table.open = k_open;
    table.close = k_close;
    table.write = k_write;
    table.fsync = k_fsync;
    table.rename = k_rename;
    table.rename_exchange = k_exchange;
    table.unlink = k_unlink;
    table.rmdir = k_rmdir;
    table.mkdir = k_mkdir;
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
