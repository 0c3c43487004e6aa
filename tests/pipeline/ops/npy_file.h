/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_NPY_FILE_H
#define MR_TESTS_NPY_FILE_H
/* NPY and NPZ files for tests, as numpy makes them. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "tests/harness.h"

enum { NPY_MOST = 8192 };

typedef struct npy_bytes {
    unsigned char v[NPY_MOST];
    size_t n;
} npy_bytes;

static inline void npy_write(const char *name, const npy_bytes *f)
{
    FILE *to = fopen(mr_test_path(name), "wb");
    mr_check(to && fwrite(f->v, 1, f->n, to) == f->n && fclose(to) == 0);
}

static inline void npy_put(npy_bytes *f, const void *p, size_t n)
{
    mr_check(n <= sizeof f->v - f->n);
    if (n)
        memcpy(f->v + f->n, p, n);
    f->n += n;
}

/* An NPY file of this version; head: the dictionary without its brackets. */
static inline void npy_put_array(npy_bytes *f, int version, const char *head, const void *values,
                                 size_t n)
{
    char text[512];
    size_t before = version == 1 ? 10 : 12;
    int size = snprintf(text, sizeof text, "{%s, }", head);
    while ((before + (size_t)size + 1) % 64)
        text[size++] = ' ';
    text[size++] = '\n';
    const unsigned char start[12] = {0x93,
                                     'N',
                                     'U',
                                     'M',
                                     'P',
                                     'Y',
                                     (unsigned char)version,
                                     0,
                                     (unsigned char)size,
                                     (unsigned char)(size >> 8)};
    npy_put(f, start, before);
    npy_put(f, text, (size_t)size);
    npy_put(f, values, n);
}

static inline void npy_file(const char *name, const char *head, const void *values, size_t n)
{
    npy_bytes f = {{0}, 0};
    npy_put_array(&f, 1, head, values, n);
    npy_write(name, &f);
}

#define NPY_HEAD(descr, order, shape)                                                              \
    "'descr': " descr ", 'fortran_order': " order ", 'shape': " shape

static inline void npy_put_le(npy_bytes *f, uint32_t v, size_t n)
{
    for (size_t i = 0; i < n; i++, v >>= 8)
        npy_put(f, &(unsigned char){(unsigned char)v}, 1);
}

/* Adds the member to a zip archive and its directory, stored. */
static inline void npy_put_member(npy_bytes *f, npy_bytes *directory, const char *name,
                                  const npy_bytes *data)
{
    uint32_t crc = (uint32_t)crc32(0, data->v, (unsigned)data->n), at = (uint32_t)f->n;
    for (int k = 0; k < 2; k++) {
        npy_bytes *to = k ? directory : f;
        npy_put(to, k ? "PK\1\2\x14\0" : "PK\3\4", k ? 6 : 4);
        npy_put(to, "\x14\0\0\0\0\0\0\0\x21\0", 10);
        npy_put_le(to, crc, 4);
        npy_put_le(to, (uint32_t)data->n, 4);
        npy_put_le(to, (uint32_t)data->n, 4);
        npy_put_le(to, (uint32_t)strlen(name), 2);
        npy_put_le(to, 0, 2);
        if (k) {
            npy_put_le(to, 0, 4);
            npy_put_le(to, 0, 2);
            npy_put_le(to, 0, 4);
            npy_put_le(to, at, 4);
        }
        npy_put(to, name, strlen(name));
    }
    npy_put(f, data->v, data->n);
}

static inline void npy_end_zip(npy_bytes *f, const npy_bytes *directory, uint32_t members)
{
    uint32_t at = (uint32_t)f->n;
    npy_put(f, directory->v, directory->n);
    npy_put(f, "PK\5\6\0\0\0\0", 8);
    npy_put_le(f, members, 2);
    npy_put_le(f, members, 2);
    npy_put_le(f, (uint32_t)directory->n, 4);
    npy_put_le(f, at, 4);
    npy_put_le(f, 0, 2);
}

static const int64_t npy_six[] = {0, 1, 2, 3, 4, 5};

/* An archive: x of int64[3, 2], y of int64[3] in Fortran's order, t of 2 bools. */
static inline void npz_file(const char *name)
{
    npy_bytes f = {{0}, 0}, directory = {{0}, 0}, x = {{0}, 0}, y = {{0}, 0}, t = {{0}, 0};
    npy_put_array(&x, 1, NPY_HEAD("'<i8'", "False", "(3, 2)"), npy_six, sizeof npy_six);
    npy_put_array(&y, 1, NPY_HEAD("'<i8'", "True", "(3, 2)"), npy_six, sizeof npy_six);
    npy_put_array(&t, 1, NPY_HEAD("'|b1'", "False", "(2,)"), "\1\0", 2);
    npy_put_member(&f, &directory, "x.npy", &x);
    npy_put_member(&f, &directory, "y.npy", &y);
    npy_put_member(&f, &directory, "t.npy", &t);
    npy_end_zip(&f, &directory, 3);
    npy_write(name, &f);
}

#endif
