/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/codec_impl.h"

#include <string.h>

static const char *const names[] = {[MR_COMPRESSION_NONE] = "",
                                    [MR_COMPRESSION_GZIP] = "GZIP",
                                    [MR_COMPRESSION_ZLIB] = "ZLIB",
                                    [MR_COMPRESSION_ZSTD] = "ZSTD"};

bool mr_compression_find(const char *name, mr_compression *out)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name ? name : "")) {
            *out = (mr_compression)i;
            return true;
        }
    return false;
}

const char *mr_compression_name(mr_compression c)
{
    return (size_t)c < sizeof names / sizeof *names ? names[c] : "?";
}

mr_code mr__codec_decode_open(mr__codec **out, mr_compression c, mr_status *st)
{
    switch (c) {
    case MR_COMPRESSION_GZIP:
        return mr__zlib_decode_open(out, true, st);
    case MR_COMPRESSION_ZLIB:
        return mr__zlib_decode_open(out, false, st);
    case MR_COMPRESSION_ZSTD:
        return mr__zstd_decode_open(out, st);
    case MR_COMPRESSION_NONE:
    case MR_COMPRESSION_DETECT:
    case MR_COMPRESSION_PROVEN:
        break;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "unsupported compression type %d", (int)c);
}

mr_code mr__codec_encode_open(mr__codec **out, mr_compression c, mr_status *st)
{
    switch (c) {
    case MR_COMPRESSION_GZIP:
        return mr__zlib_encode_open(out, true, st);
    case MR_COMPRESSION_ZLIB:
        return mr__zlib_encode_open(out, false, st);
    case MR_COMPRESSION_ZSTD:
        return mr__zstd_encode_open(out, st);
    case MR_COMPRESSION_NONE:
    case MR_COMPRESSION_DETECT:
    case MR_COMPRESSION_PROVEN:
        break;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "unsupported compression type %d", (int)c);
}

const char *mr__compressor_seen(const uint8_t *b, size_t n, mr_compression *c, bool *more)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
        mr_compression c;
    } known[] = {{"gzip", "\x1f\x8b\x08", 3, MR_COMPRESSION_GZIP},
                 {"zstd", "\x28\xb5\x2f\xfd", 4, MR_COMPRESSION_ZSTD},
                 {"bzip2", "BZh\0\x31\x41\x59\x26", 8, MR_COMPRESSION_NONE},
                 {"xz", "\xfd\x37zXZ\0", 6, MR_COMPRESSION_NONE},
                 {"zstd", "\x50\x2a\x4d\x18", 4, MR_COMPRESSION_ZSTD}, /* a frame to skip */
                 {"lz4", "\x04\x22\x4d\x18", 4, MR_COMPRESSION_NONE},
                 {"lz4", "\x02\x21\x4c\x18", 4, MR_COMPRESSION_NONE},
                 {"lzip", "LZIP\x01", 5, MR_COMPRESSION_NONE},
                 {"lzop", "\x89LZO\0\r\n\x1a\n", 9, MR_COMPRESSION_NONE},
                 {"7z", "7z\xbc\xaf\x27\x1c", 6, MR_COMPRESSION_NONE},
                 {"rar", "Rar!\x1a\x07", 6, MR_COMPRESSION_NONE},
                 {"zip", "PK\x03\x04", 4, MR_COMPRESSION_NONE},
                 {"compress", "\x1f\x9d", 2, MR_COMPRESSION_NONE},
                 {"snappy", "\xff\x06\0\0sNaPpY", 10, MR_COMPRESSION_NONE}};
    uint8_t head[10] = {0};
    *more = false;
    *c = MR_COMPRESSION_NONE;
    n = n < sizeof head ? n : sizeof head;
    memcpy(head, b, n);
    if (n > 3 && head[0] == 'B' && head[3] >= '1' && head[3] <= '9')
        head[3] = 0; /* bzip2's block size */
    if (n && (head[0] & 0xf0) == 0x50 && memcmp(head + 1, "\x2a\x4d\x18", (n < 4 ? n : 4) - 1) == 0)
        head[0] = 0x50; /* one of 16 kinds */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t k = n < known[i].n ? n : known[i].n;
        if (memcmp(head, known[i].bytes, k) != 0)
            continue;
        if (k == known[i].n) {
            *c = known[i].c;
            return known[i].name;
        }
        *more = true;
    }
    return NULL;
}

const char *mr__compressor_of_table(const uint8_t *b, size_t n)
{
    mr_compression c;
    bool more;
    const char *name = mr__compressor_seen(b, n, &c, &more);
    if (!name && n >= 2 && b[0] == 0x78 && (b[0] * 256 + b[1]) % 31 == 0)
        return "zlib";
    return name;
}

void mr__codec_close(mr__codec *c)
{
    if (c)
        c->class_->close(c);
}
