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
        break;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "unsupported compression type %d", (int)c);
}

void mr__codec_close(mr__codec *c)
{
    if (c)
        c->class_->close(c);
}
