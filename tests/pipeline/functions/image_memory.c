/* SPDX-License-Identifier: Apache-2.0 */
/* What images take, as their headers say, and which headers are not believed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/formats/images/image_codec.h"
#include "pipeline/memory_bound.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* Reads the header of a gray JPEG of 640 x 640 pixels, of a kind of coding, in a file of `size`
 * bytes. */
static mr_code measured(const char *before, char kind, size_t size, mr__image_info *info,
                        mr_status *st)
{
    char *v = calloc(1, size);
    memcpy(v, "\xFF\xD8\xFF\xFE\0\2", 6); /* an empty comment */
    int n = 6 + snprintf(v + 6, size - 6, "%s\xFF%c", before, kind);
    memcpy(v + n, "\0\13\x08\x02\x80\x02\x80\1\1\x11\0\xFF\xDA\0\x08\1\1\0\0\x3F\0", 21);
    mr__image_decoder d = {0};
    mr_code rc = mr__image_header(&d, MR__IMAGE_JPEG, v, size, 0, info, st);
    mr__image_decoder_reset(&d);
    free(v);
    return rc;
}

/* Huffman codes have a bit for each block of 64 pixels at least, arithmetic ones need not. */
MR_TEST(a_jpeg_that_claims_more_than_its_bytes_can_hold_is_refused)
{
    static const char *const before[] = {"", "\xFF\xFF", "between"};
    mr__image_info info;
    mr_status st;
    for (size_t i = 0; i < 3; i++) {
        mr_test_context("after '%s'", before[i]);
        mr_code_is(measured(before[i], '\xC0', 799, &info, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "799 bytes cannot be 640 x 640 pixels");
        mr_ok(measured(before[i], '\xC0', 800, &info, &st), &st);
        mr_eq_u64(info.scratch, 0);
        mr_ok(measured(before[i], '\xC9', 60, &info, &st), &st);
        mr_eq_u64(info.scratch, 0);
        mr_ok(measured(before[i], '\xCA', 60, &info, &st), &st);
        mr_eq_u64(info.scratch, 2 * 640 * 640);
        mr_ok(measured(before[i], '\xC2', 800, &info, &st), &st);
        mr_eq_u64(info.scratch, 2 * 640 * 640);
    }
    mr_test_context("%s", "");
}

/* The inks of a smaller image are as small. */
MR_TEST(with_a_memory_limit_what_decoding_takes_counts)
{
    unsigned char *inks = calloc(400 * 400, 4);
    unsigned char *jpeg = NULL;
    unsigned long size = 0;
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_spec *spec = mr_spec_tensor(MR_STRING, 0, NULL), *out_spec = NULL;
    mr_status st;
    tjhandle tj = tjInitCompress();
    mr_check(tjCompress2(tj, inks, 400, 0, 400, TJPF_CMYK, &jpeg, &size, TJSAMP_444, 90, 0) == 0);
    mr_ok(mr_block_prepare(&in, 1, &st), &st);
    in.rows = 1;
    mr_ok(mr_array_alloc(&in.columns[0], MR_STRING, 0, NULL, 1, &st), &st);
    *(mr_bytes *)in.columns[0].data = (mr_bytes){(char *)jpeg, size};
    mr__memory_bound_set(50 * 50 * 7);
    mr_ok(evaluate_step("x => decode_jpeg(x, ratio=8)", spec, &in, &out_spec, &out, &errors, &st),
          &st);
    mr_eq_u64(errors.n, 0);
    mr_eq_i64(out.columns[0].shape[0], 50);
    mr_block_reset(&out);
    mr_spec_unref(out_spec);
    mr__memory_bound_set(400 * 400 * 7 - 1);
    mr_ok(evaluate_step("x => decode_jpeg(x)", spec, &in, &out_spec, &out, &errors, &st), &st);
    mr__memory_bound_set(SIZE_MAX);
    mr_eq_u64(errors.n, 1);
    mr_has_str(errors.v[0].status.message, "400 x 400 pixels takes 1120000 bytes");
    mr_eq_i64(errors.v[0].status.sys_errno, 0);
    mr_row_errors_reset(&errors);
    mr_spec_unref(spec);
    mr_spec_unref(out_spec);
    mr_block_reset(&in);
    mr_block_reset(&out);
    tjDestroy(tj);
    tjFree(jpeg);
    free(inks);
}

/* As of other errors of elements, the message says its number, and those after it are right. */
MR_TEST(an_image_that_is_too_large_is_an_error_of_its_element)
{
    static const int64_t which[] = {1, 2, 4};
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    char text[200];
    mr_dataset *ds =
        mr_test_graph("range(5).map(x => size(decode_jpeg(encode_jpeg(zeros([8, 8 + 8 "
                      "* cast(x == 1 or x == 2, \"int64\"), 3], \"uint8\")))) // (4 - x))");
    mr_iterator_opts o = {.has_threads = true};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr__memory_bound_set(8 * 8 * 3);
    for (size_t i = 0, errors = 0; i < 5; i++) {
        mr_code rc = mr_iterator_next(it, 1, &b, &st);
        if (rc == MR_OK)
            continue;
        mr_status_format(&st, text, sizeof text);
        mr_test_context("%s", text);
        mr_eq_i64(i, which[errors++]);
        mr_code_is(rc, i == 4 ? MR_INVALID_ARGUMENT : MR_RESOURCE_EXHAUSTED, &st);
        char place[40];
        snprintf(place, sizeof place, "map: element %zu: ", i);
        mr_has_str(text, place);
    }
    mr__memory_bound_set(SIZE_MAX);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
