/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/system.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <unistd.h>

/* open and stat are variadic or inline in some C libraries: give them one plain address. */
static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static int real_stat(const char *path, struct stat *out)
{
    return stat(path, out);
}

static int real_fstat(int fd, struct stat *out)
{
    return fstat(fd, out);
}

static const mr_system real_table = {
    .open = real_open,
    .close = close,
    .pread = pread,
    .preadv2 = preadv2,
    .read = read,
    .write = write,
    .fstat = real_fstat,
    .stat = real_stat,
    .fsync = fsync,
    .rename = rename,
    .unlink = unlink,
    .opendir = opendir,
    .readdir = readdir,
    .closedir = closedir,
    .posix_fadvise = posix_fadvise,
    .uring_init = io_uring_queue_init,
    .uring_submit = io_uring_submit,
    .uring_wait = io_uring_wait_cqe,
    .uring_exit = io_uring_queue_exit,
};

const mr_system *mr__sys = &real_table;

void mr__system_set(const mr_system *table)
{
    mr__sys = table ? table : &real_table;
}

const mr_system *mr__system_real(void)
{
    return &real_table;
}
