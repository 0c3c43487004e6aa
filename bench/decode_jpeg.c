/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes JPEG images in one thread, against a loop that calls libturbojpeg on the same bytes with
 * one output buffer; and decodes with a resize that lets the decoder skip pixels, against decoding
 * without it.
 *
 *     decode_jpeg */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum { IMAGES = 256, KINDS = 8 };

typedef struct job {
    char path[64];
    mr_bytes images[KINDS];
    unsigned char *pixels;
    const char *graph;
} job;

static uint64_t looked; /* keeps the compiler from removing the loops */

/* About the bits per pixel of photographs: ramps, edges and some noise. */
static mr_bytes make_image(int k, int width, int height)
{
    unsigned char *p = malloc((size_t)(width * height) * 3), *out = NULL;
    unsigned long size = 0;
    uint32_t noise = (uint32_t)k + 1;
    tjhandle tj = tjInitCompress();
    for (int i = 0; p && i < width * height; i++)
        for (int c = 0; c < 3; c++) {
            int x = i % width, y = i / width;
            noise = noise * 1664525u + 1013904223u;
            p[3 * i + c] =
                (unsigned char)(128 + 50 * sin(0.05 * x + c) * cos(0.03 * y + k) +
                                ((x / 31 + y / 27) % 2 ? 25 : -25) + (int)(noise >> 28) - 8);
        }
    if (!p || !tj || tjCompress2(tj, p, width, 0, height, TJPF_RGB, &out, &size, TJSAMP_420, 88, 0))
        bench_die("making an image");
    tjDestroy(tj);
    free(p);
    return (mr_bytes){(char *)out, size};
}

static void make_file(job *j)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    snprintf(j->path, sizeof j->path, "/tmp/millrace-bench-%d.tfrecord", (int)getpid());
    bench_must(mr_tfrecord_writer_open(&w, j->path, NULL, &st), &st);
    for (int i = 0; i < IMAGES; i++) {
        const mr_bytes *image = &j->images[i % KINDS];
        bench_must(mr_tfrecord_writer_append(w, image->data, image->size, &st), &st);
    }
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
}

static double library(void *ctx)
{
    job *j = ctx;
    double pixels = 0;
    tjhandle tj = tjInitDecompress();
    for (int i = 0; i < IMAGES; i++) {
        const mr_bytes *s = &j->images[i % KINDS];
        int w, h, sampling, space;
        if (tjDecompressHeader3(tj, (const unsigned char *)s->data, s->size, &w, &h, &sampling,
                                &space) ||
            tjDecompress2(tj, (const unsigned char *)s->data, s->size, j->pixels, w, 0, h, TJPF_RGB,
                          0))
            bench_die(tjGetErrorStr2(tj));
        looked += j->pixels[0];
        pixels += (double)w * h;
    }
    tjDestroy(tj);
    return pixels;
}

static double run(const job *j, const char *function)
{
    char text[256];
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    double rows = 0;
    snprintf(text, sizeof text, "tfrecord(\"%s\").map(%s)", j->path, function);
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 16, &b, &st)) == MR_OK) {
        looked += *(const unsigned char *)b.columns[0].data;
        rows += (double)b.rows;
    }
    bench_must(rc == MR_END ? MR_OK : rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rows;
}

static double ours(void *ctx)
{
    run(ctx, "x => decode_jpeg(x, channels=3)");
    return (double)IMAGES * 500 * 375;
}

static double scaled(void *ctx)
{
    return run(ctx, "x => resize(decode_jpeg(x), [64, 64], antialias=true)");
}

static double whole(void *ctx)
{
    return run(ctx, "x => resize(decode_jpeg(x, ratio=1), [64, 64], antialias=true)");
}

int main(void)
{
    job j = {.pixels = malloc(500 * 375 * 3)};
    if (!j.pixels)
        return 1;
    for (int k = 0; k < KINDS; k++)
        j.images[k] = make_image(k, 500, 375);
    make_file(&j);
    bench_in_turns("decode_jpeg, 500 x 375", "Mpixels/s", 1e-6, 9, ours, library, &j);
    bench_in_turns("... and resize to 64 x 64", "images/s", 1, 9, scaled, whole, &j);
    unlink(j.path);
    for (int k = 0; k < KINDS; k++)
        tjFree((unsigned char *)(uintptr_t)j.images[k].data);
    free(j.pixels);
    return looked == 42;
}
