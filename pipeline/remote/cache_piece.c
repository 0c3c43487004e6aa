/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/cache_piece.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/fnv.h"
#include "pipeline/crc32c.h"
#include "pipeline/hide_secrets.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/retry.h"

static const char magic[] = "MRPIECE1";
enum { FIXED = 48, MOST_HEAD = 1 << 20, READ_AT_ONCE = 256 << 10 };

/* ---- names ---- */

/* The server that a URL without a host is asked at. */
static const char *endpoint_of(const char *url)
{
    static const struct {
        const char *scheme, *variables[2], *usual;
    } all[] = {{"s3://", {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "https://s3.amazonaws.com"},
               {"gs://", {"STORAGE_EMULATOR_HOST"}, "https://storage.googleapis.com"},
               {"hf://", {"HF_ENDPOINT"}, "https://huggingface.co"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strncmp(url, all[i].scheme, strlen(all[i].scheme)) != 0)
            continue;
        for (size_t k = 0; k < 2 && all[i].variables[k]; k++) {
            const char *v = getenv(all[i].variables[k]);
            if (v && *v)
                return v;
        }
        return all[i].usual;
    }
    return "";
}

mr_code mr__cache_key_make(mr__cache_key *out, const char *url, const char *etag, int64_t size,
                           mr_status *st)
{
    const char *endpoint = endpoint_of(url);
    bool web = mr__url_kind_of(url) == MR__URL_HTTP;
    size_t a = strlen(endpoint), b = web ? strcspn(url, "#") : strlen(url);
    size_t room = b + 64, c = strlen(etag);
    while (a && endpoint[a - 1] == '/')
        a--;
    *out = (mr__cache_key){.size = size};
    char *text = mr_calloc(1, a + room + c + 3);
    if (!text)
        return mr_fail_memory(st, a + b + c, "the key of a cached object");
    memcpy(text, endpoint, a);
    char *u = text + a + 1;
    memcpy(u, url, b);
    char *query = web ? strchr(u, '?') : NULL;
    if (query) {
        out->query = mr__query_hash(query + 1);
        if (mr__is_signed_query(query + 1))
            *query = '\0';
    }
    mr__hide_secrets(u, room);
    mr__hide_secrets(text, a + 1);
    /* Hiding shortens the endpoint at most. */
    memmove(text + strlen(text) + 1, u, strlen(u) + 1);
    out->url = text + strlen(text) + 1;
    char *e = text + strlen(text) + 1 + strlen(out->url) + 1;
    memcpy(e, etag, c + 1);
    out->etag = e;
    out->text = text;
    out->n_text = (size_t)(e + c + 1 - text);
    return MR_OK;
}

void mr__cache_name(const mr__cache_key *k, int64_t number, const char *ending,
                    char out[MR__CACHE_NAME])
{
    uint64_t h[2];
    uint8_t rest[24];
    mr__store_le(rest, k->query, 8);
    mr__store_le(rest + 8, (uint64_t)k->size, 8);
    mr__store_le(rest + 16, (uint64_t)number, 8);
    for (size_t i = 0; i < 2; i++) {
        h[i] = mr__fnv1a(MR__FNV_BASIS + i * UINT64_C(0x9E3779B97F4A7C15), k->text, k->n_text);
        h[i] = mr__fnv1a(h[i], rest, sizeof rest);
    }
    snprintf(out, MR__CACHE_NAME, "%016" PRIx64 "%08" PRIx32 ".%.6s", h[0], (uint32_t)(h[1] >> 32),
             ending);
}

/* ---- heads ---- */

static uint32_t blocks_of(uint32_t bytes)
{
    return (bytes + MR__PIECE_BLOCK - 1) / MR__PIECE_BLOCK;
}

uint32_t mr__piece_head(const mr__cache_key *k, uint32_t bytes)
{
    return (uint32_t)((FIXED + k->n_text + 4 * (size_t)blocks_of(bytes) + 4095) / 4096 * 4096);
}

void mr__piece_make_head(const mr__cache_key *k, int64_t number, uint32_t bytes,
                         const uint8_t *crcs, uint8_t *out)
{
    uint32_t head = mr__piece_head(k, bytes);
    memset(out, 0, head);
    memcpy(out, magic, 8);
    mr__store_le(out + 12, head, 4);
    mr__store_le(out + 16, (uint64_t)number, 8);
    mr__store_le(out + 24, (uint64_t)k->size, 8);
    mr__store_le(out + 32, k->query, 8);
    mr__store_le(out + 40, bytes, 4);
    mr__store_le(out + 44, k->n_text, 4);
    memcpy(out + FIXED, k->text, k->n_text);
    memcpy(out + FIXED + k->n_text, crcs, 4 * (size_t)blocks_of(bytes));
    mr__store_le(out + 8, mr_crc32c(out + 12, head - 12), 4);
}

/* Reads and checks the head of an open file. Owned in *out. */
static mr__piece_state read_head(int fd, const struct stat *is, uint8_t **out)
{
    uint8_t fixed[FIXED];
    if (mr__read_all(fd, fixed, FIXED, 0) != FIXED || memcmp(fixed, magic, 8) != 0)
        return MR__PIECE_DAMAGED;
    uint32_t size = (uint32_t)mr__load_le(fixed + 12, 4),
             bytes = (uint32_t)mr__load_le(fixed + 40, 4);
    uint32_t text = (uint32_t)mr__load_le(fixed + 44, 4);
    if (size > MOST_HEAD || bytes > MR__PIECE ||
        FIXED + (uint64_t)text + 4 * (uint64_t)blocks_of(bytes) > size ||
        is->st_size != (int64_t)size + bytes || text < 3)
        return MR__PIECE_DAMAGED;
    uint8_t *head = mr_malloc(size);
    if (!head)
        return MR__PIECE_NO_MEMORY;
    *out = head;
    if (mr__read_all(fd, head, size, 0) == (ssize_t)size &&
        mr__load_le(head + 8, 4) == mr_crc32c(head + 12, size - 12) &&
        mr__load_le(head + 44, 4) == text && head[FIXED + text - 1] == '\0')
        return MR__PIECE_OPEN;
    mr_free(head);
    *out = NULL;
    return MR__PIECE_DAMAGED;
}

static int open_file(mr__cache *c, const char *name, struct stat *is)
{
    char path[PATH_MAX];
    int fd;
    mr__cache_path(c, name, false, path);
    MR__RETRY(fd, mr__sys->open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0));
    if (fd >= 0 && mr__sys->fstat(fd, is) != 0) {
        mr__sys->close(fd);
        return -1;
    }
    return fd;
}

/* ---- blocks that were checked ---- */

typedef struct checked {
    uint64_t file; /* hash of what tells one from another; 0: none */
    uint64_t blocks[MR__PIECE_BLOCKS / 64];
} checked;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `all` */
MR__AROUND_FORK(lock, NULL)
static checked all[4096];

/* Without the time of its status, which being marked as used changes. */
static uint64_t hash_file(const struct stat *is)
{
    uint64_t v[] = {(uint64_t)is->st_dev, (uint64_t)is->st_ino, (uint64_t)is->st_mtim.tv_sec,
                    (uint64_t)is->st_mtim.tv_nsec, (uint64_t)is->st_size};
    uint64_t h = mr__fnv1a(MR__FNV_BASIS, v, sizeof v);
    return h ? h : 1;
}

static void recall_checked(mr__piece *p)
{
    uint64_t h = hash_file(&p->is);
    pthread_mutex_lock(&lock);
    const checked *c = &all[h >> 52];
    if (c->file == h)
        memcpy(p->checked, c->blocks, sizeof p->checked);
    pthread_mutex_unlock(&lock);
}

static void note_checked(const mr__piece *p)
{
    uint64_t h = hash_file(&p->is);
    pthread_mutex_lock(&lock);
    checked *c = &all[h >> 52];
    if (c->file != h)
        *c = (checked){.file = h};
    for (size_t i = 0; i < MR__PIECE_BLOCKS / 64; i++)
        c->blocks[i] |= p->checked[i];
    pthread_mutex_unlock(&lock);
}

/* ---- reading ---- */

mr__piece_state mr__piece_open(mr__cache *c, const mr__cache_key *k, int64_t number, mr__piece *out)
{
    char name[MR__CACHE_NAME];
    mr__cache_name(k, number, "piece", name);
    *out = (mr__piece){.number = number};
    out->fd = open_file(c, name, &out->is);
    if (out->fd < 0)
        return MR__PIECE_ABSENT;
    uint8_t *head = NULL;
    mr__piece_state state = read_head(out->fd, &out->is, &head);
    /* A file of another object with the same hash is as good as a damaged one. */
    if (!head || mr__load_le(head + 44, 4) != k->n_text ||
        memcmp(head + FIXED, k->text, k->n_text) != 0 || mr__load_le(head + 32, 8) != k->query ||
        mr__load_le(head + 24, 8) != (uint64_t)k->size ||
        mr__load_le(head + 16, 8) != (uint64_t)number) {
        mr_free(head);
        mr__sys->close(out->fd);
        out->fd = -1;
        return state == MR__PIECE_NO_MEMORY ? state : MR__PIECE_DAMAGED;
    }
    out->head = (uint32_t)mr__load_le(head + 12, 4);
    out->bytes = (uint32_t)mr__load_le(head + 40, 4);
    memmove(head, head + FIXED + k->n_text, 4 * (size_t)blocks_of(out->bytes));
    out->crcs = head;
    recall_checked(out);
    mr__cache_touch(out->fd);
    return MR__PIECE_OPEN;
}

void mr__piece_close(mr__piece *p)
{
    if (p->fd >= 0) {
        note_checked(p);
        mr__sys->close(p->fd);
    }
    mr_free(p->crcs);
    p->crcs = NULL;
    p->fd = -1;
}

bool mr__piece_read(mr__piece *p, uint32_t from, void *data, uint32_t n)
{
    uint8_t *to = data;
    for (uint32_t at = 0; at < n;) {
        /* So that the checksum finds the bytes in the processor's cache. */
        uint32_t part = n - at < READ_AT_ONCE ? n - at : READ_AT_ONCE, stop = at + part;
        if (mr__read_all(p->fd, to + at, part, (int64_t)p->head + from + at) != (ssize_t)part)
            return false;
        for (; at < stop; at += MR__PIECE_BLOCK) {
            uint32_t size = stop - at < MR__PIECE_BLOCK ? stop - at : MR__PIECE_BLOCK;
            uint32_t block = (from + at) / MR__PIECE_BLOCK;
            uint64_t bit = UINT64_C(1) << block % 64, *word = &p->checked[block / 64];
            if (!(*word & bit) &&
                mr_crc32c(to + at, size) != mr__load_le(p->crcs + 4 * (size_t)block, 4))
                return false;
            *word |= bit;
        }
        at = stop;
    }
    return true;
}

bool mr__piece_read_checked(const mr__piece *p, uint32_t from, void *data, uint32_t n)
{
    for (uint32_t i = from / MR__PIECE_BLOCK; i < blocks_of(from + n); i++)
        if (!(p->checked[i / 64] & UINT64_C(1) << i % 64))
            return false;
    return mr__read_all(p->fd, data, n, (int64_t)p->head + from) == (ssize_t)n;
}

mr__piece_state mr__piece_note_read(mr__cache *c, const char *name, mr__piece_note *out)
{
    struct stat is;
    int fd = open_file(c, name, &is);
    if (fd < 0)
        return MR__PIECE_ABSENT;
    uint8_t *head = NULL;
    mr__piece_state state = read_head(fd, &is, &head);
    mr__sys->close(fd);
    if (!head)
        return state;
    *out = (mr__piece_note){.query = mr__load_le(head + 32, 8),
                            .number = (int64_t)mr__load_le(head + 16, 8),
                            .size = (int64_t)mr__load_le(head + 24, 8),
                            .bytes = (uint32_t)mr__load_le(head + 40, 4)};
    size_t n = (size_t)mr__load_le(head + 44, 4);
    const char *texts[3] = {"", "", ""}, *at = (const char *)head + FIXED, *end = at + n;
    for (size_t i = 0; i < 3 && at < end; i++) {
        texts[i] = at;
        at += strlen(at) + 1;
    }
    out->text = (char *)head;
    out->endpoint = texts[0];
    out->url = texts[1];
    out->etag = texts[2];
    return MR__PIECE_OPEN;
}
