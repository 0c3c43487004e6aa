/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/service/dispatcher/failing_vfs.h"

#include <sqlite3.h>
#include <stdatomic.h>

#include "tests/harness.h"

typedef struct file {
    sqlite3_file base;
    sqlite3_file *real; /* follows this struct in memory */
} file;

static sqlite3_vfs vfs, *real;
static atomic_llong calls, nth;
static atomic_int code;
static atomic_bool persistent, reads;

static bool fails(void)
{
    int64_t call = atomic_fetch_add(&calls, 1) + 1, at = atomic_load(&nth);
    return at && (call == at || (call > at && atomic_load(&persistent)));
}

void mr_failing_vfs_at(int64_t n, int error, bool persists)
{
    atomic_store(&nth, 0);
    atomic_store(&calls, 0);
    atomic_store(&code, error);
    atomic_store(&persistent, persists);
    atomic_store(&nth, n);
}

int64_t mr_failing_vfs_calls(void)
{
    return atomic_load(&calls);
}

void mr_failing_vfs_reads(bool count)
{
    atomic_store(&reads, count);
}

#define REAL(f) (((file *)(f))->real)

static int x_close(sqlite3_file *f)
{
    return REAL(f)->pMethods->xClose(REAL(f));
}
static int x_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    if (atomic_load(&reads) && fails())
        return atomic_load(&code);
    return REAL(f)->pMethods->xRead(REAL(f), to, n, at);
}
static int x_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (fails()) /* half of it arrives, as when a disk fills up */
        return REAL(f)->pMethods->xWrite(REAL(f), from, n / 2, at), atomic_load(&code);
    return REAL(f)->pMethods->xWrite(REAL(f), from, n, at);
}
static int x_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return fails() ? atomic_load(&code) : REAL(f)->pMethods->xTruncate(REAL(f), n);
}
static int x_sync(sqlite3_file *f, int flags)
{
    (void)f; /* nothing is synced: no test cuts the power */
    (void)flags;
    return fails() ? atomic_load(&code) : SQLITE_OK;
}
static int x_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return atomic_load(&reads) && fails() ? SQLITE_IOERR_FSTAT
                                          : REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static int x_lock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xLock(REAL(f), l);
}
static int x_unlock(sqlite3_file *f, int l)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), l);
}
static int x_reserved(sqlite3_file *f, int *out)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}
static int x_control(sqlite3_file *f, int op, void *v)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, v);
}
static int x_sector(sqlite3_file *f)
{
    return REAL(f)->pMethods->xSectorSize(REAL(f));
}
static int x_device(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
/* What version 2 adds is shared memory, which an exclusive account does without: xShmMap and its
 * kin must be there all the same for WAL to be allowed at all. */
static int x_shm_map(sqlite3_file *f, int page, int n, int extend, void volatile **out)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), page, n, extend, out);
}
static int x_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags);
}
static void x_shm_barrier(sqlite3_file *f)
{
    REAL(f)->pMethods->xShmBarrier(REAL(f));
}
static int x_shm_unmap(sqlite3_file *f, int remove)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = x_close,
    .xRead = x_read,
    .xWrite = x_write,
    .xTruncate = x_truncate,
    .xSync = x_sync,
    .xFileSize = x_size,
    .xLock = x_lock,
    .xUnlock = x_unlock,
    .xCheckReservedLock = x_reserved,
    .xFileControl = x_control,
    .xSectorSize = x_sector,
    .xDeviceCharacteristics = x_device,
    .xShmMap = x_shm_map,
    .xShmLock = x_shm_lock,
    .xShmBarrier = x_shm_barrier,
    .xShmUnmap = x_shm_unmap,
};

static int x_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    (void)v;
    f->pMethods = NULL;
    if (flags & SQLITE_OPEN_WAL && fails())
        return atomic_load(&code);
    REAL(f) = (sqlite3_file *)((file *)f + 1);
    int rc = real->xOpen(real, name, REAL(f), flags, out);
    if (rc == SQLITE_OK)
        f->pMethods = &methods;
    return rc;
}
static int x_delete(sqlite3_vfs *v, const char *name, int sync)
{
    (void)v;
    (void)sync;
    return fails() ? atomic_load(&code) : real->xDelete(real, name, 0);
}

void mr_failing_vfs(void)
{
    real = sqlite3_vfs_find(NULL);
    vfs = *real;
    vfs.zName = "failing";
    vfs.pNext = NULL;
    vfs.szOsFile += (int)sizeof(file);
    vfs.xOpen = x_open;
    vfs.xDelete = x_delete;
    mr_check(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK);
}
