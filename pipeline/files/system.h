/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_SYSTEM_H
#define MR_PIPELINE_FILES_SYSTEM_H
/* Every system call that can fail for reasons outside the program, as one table. system.c holds the
 * only callers of the real ones; tests replace entries to fail the n-th call. Each entry behaves as
 * its namesake: -1 and errno on failure (io_uring entries: -errno).
 *
 * thread   any; mr_system_set only before other threads use the table */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

struct io_uring;
struct io_uring_cqe;

typedef struct mr_system {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *buf, size_t n, off_t offset);
    ssize_t (*preadv2)(int fd, const struct iovec *iov, int n, off_t offset, int flags);
    ssize_t (*read)(int fd, void *buf, size_t n);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    int (*fstat)(int fd, struct stat *out);
    int (*stat)(const char *path, struct stat *out);
    int (*fsync)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    DIR *(*opendir)(const char *path);
    struct dirent *(*readdir)(DIR *dir);
    int (*closedir)(DIR *dir);
    int (*posix_fadvise)(int fd, off_t offset, off_t len, int advice); /* returns the errno */
    int (*uring_init)(unsigned entries, struct io_uring *ring, unsigned flags);
    int (*uring_submit)(struct io_uring *ring);
    int (*uring_wait)(struct io_uring *ring, struct io_uring_cqe **cqe);
    void (*uring_exit)(struct io_uring *ring);
} mr_system;

/* The table in force; read through this pointer at every call. */
extern const mr_system *mr__sys;
/* Replaces the table (NULL: the real one again); the caller keeps it alive. */
void mr__system_set(const mr_system *table);
/* The real table, to start a replacement from. */
const mr_system *mr__system_real(void);
#endif
