/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of images. What resize gives is compared with the definition, pixel by pixel in double,
 * and with values that TensorFlow 2 gave for the same image. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <spng.h>
#include <turbojpeg.h>
#include <zlib.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/formats/images/image_codec.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/functions/descriptor.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* ---- helpers ---- */

typedef struct image {
    int h, w, c;
    unsigned char *v;
} image;

static image noise(int h, int w, int c, uint64_t seed)
{
    image m = {h, w, c, malloc((size_t)(h * w * c) + 1)};
    for (int i = 0; i < h * w * c; i++)
        m.v[i] = (unsigned char)mr_test_random(&seed);
    return m;
}

/* Something with edges and ramps, so that a JPEG of it has all frequencies. */
static image scene(int h, int w, int c)
{
    image m = {h, w, c, malloc((size_t)(h * w * c) + 1)};
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < c; k++)
                m.v[(y * w + x) * c + k] =
                    (unsigned char)(128 + 60 * sin(0.11 * x + 0.5 * k) * cos(0.07 * y) +
                                    ((x / 23 + y / 17) % 2 ? 40 : -40));
    return m;
}

/* n images in a block of n rows. */
static void block_of(const image *m, size_t n, mr_block *b)
{
    mr_status st;
    const int64_t shape[] = {m->h, m->w, m->c};
    size_t bytes = (size_t)(m->h * m->w * m->c);
    mr_ok(mr_block_prepare(b, 1, &st), &st);
    b->rows = n;
    mr_ok(mr_array_alloc(&b->columns[0], MR_UINT8, 3, shape, n, &st), &st);
    for (size_t i = 0; i < n; i++)
        memcpy((char *)b->columns[0].data + i * bytes, m[i].v, bytes);
}

/* The result of one function of `in`, all of whose rows succeed. */
static void apply(const char *function, const mr_block *in, mr_block *out)
{
    const mr_array *a = &in->columns[0];
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_spec *spec = mr_spec_tensor(a->dtype, a->rank, a->shape), *out_spec = NULL;
    mr_status st;
    mr_ok(evaluate_step(function, spec, in, &out_spec, out, &errors, &st), &st);
    if (errors.n)
        mr_fail_test("%s: %s", function, errors.v[0].status.message);
    mr_eq_u64(out->rows, in->rows);
    mr_row_errors_reset(&errors);
    mr_spec_unref(spec);
    mr_spec_unref(out_spec);
}

/* ---- resize by its definition ---- */

static double pixel(const image *m, int y, int x, int k)
{
    y = y < 0 ? 0 : y >= m->h ? m->h - 1 : y;
    x = x < 0 ? 0 : x >= m->w ? m->w - 1 : x;
    return m->v[(y * m->w + x) * m->c + k];
}

static double bilinear(const image *m, double y, double x, int k)
{
    int y0 = (int)floor(y), x0 = (int)floor(x);
    double fy = y - y0, fx = x - x0;
    return (1 - fy) * ((1 - fx) * pixel(m, y0, x0, k) + fx * pixel(m, y0, x0 + 1, k)) +
           fy * ((1 - fx) * pixel(m, y0 + 1, x0, k) + fx * pixel(m, y0 + 1, x0 + 1, k));
}

/* Weight of source pixel i for a result pixel, by the kind of sum. */
static double weight(const char *kind, int i, int out, double scale)
{
    if (strcmp(kind, "area") == 0) {
        double low = fmax(i, out * scale), high = fmin(i + 1, (out + 1) * scale);
        return high > low ? high - low : 0;
    }
    double wide = scale > 1 ? scale : 1, distance = fabs(i + 0.5 - (out + 0.5) * scale) / wide;
    return distance < 1 ? 1 - distance : 0;
}

static double weighed(const image *m, const char *kind, int y, int x, int k, double sy, double sx)
{
    double sum = 0, all = 0;
    for (int i = 0; i < m->h; i++)
        for (int j = 0; j < m->w; j++) {
            double w = weight(kind, i, y, sy) * weight(kind, j, x, sx);
            sum += w * pixel(m, i, j, k);
            all += w;
        }
    return sum / all;
}

static double wanted(const image *m, const char *kind, int h, int w, int y, int x, int k)
{
    double sy = (double)m->h / h, sx = (double)m->w / w;
    if (strcmp(kind, "nearest") == 0)
        return pixel(m, (int)floor((y + 0.5) * sy), (int)floor((x + 0.5) * sx), k);
    if (strcmp(kind, "bilinear") == 0)
        return bilinear(m, (y + 0.5) * sy - 0.5, (x + 0.5) * sx - 0.5, k);
    return weighed(m, kind, y, x, k, sy, sx);
}

static void check_resize(const image *m, const char *kind, const char *arguments, int h, int w)
{
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    char function[160];
    snprintf(function, sizeof function, "x => cast(resize(x, [%d, %d]%s), \"float64\")", h, w,
             arguments);
    mr_test_context("%s of %d x %d x %d", function, m->h, m->w, m->c);
    block_of(m, 1, &in);
    apply(function, &in, &out);
    mr_eq_i64(out.columns[0].shape[0], h);
    mr_eq_i64(out.columns[0].shape[1], w);
    mr_eq_i64(out.columns[0].shape[2], m->c);
    const double *v = out.columns[0].data;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < m->c; k++)
                mr_eq_f64(v[(y * w + x) * m->c + k], wanted(m, kind, h, w, y, x, k), 1e-3);
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_test_context("%s", "");
}

MR_TEST(resize_is_its_definition)
{
    static const int sizes[][4] = {{5, 7, 5, 7},   {5, 7, 10, 14}, {8, 8, 4, 4}, {9, 13, 4, 5},
                                   {31, 17, 3, 2}, {4, 6, 9, 5},   {1, 1, 3, 3}, {16, 5, 1, 1},
                                   {3, 40, 7, 11}, {2, 2, 1, 5}};
    static const int channels[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int c = 0; c < 4; c++) {
            image m = noise(sizes[i][0], sizes[i][1], channels[c], i * 10 + (size_t)c);
            int h = sizes[i][2], w = sizes[i][3];
            check_resize(&m, "bilinear", "", h, w);
            check_resize(&m, "antialias", ", antialias=true", h, w);
            check_resize(&m, "area", ", method=\"area\"", h, w);
            check_resize(&m, "nearest", ", method=\"nearest\"", h, w);
            free(m.v);
        }
}

/* TensorFlow 2.21's tf.image.resize of a 5 x 4 image, pixel i being (37 i + 11) mod 256. */
static const struct {
    int h, w;
    const char *arguments;
    float v[42];
} tensorflow[] = {
    {2, 3, "", {128.166672f, 177.5f, 66.833313f, 178.166672f, 131.5f, 84.833344f}},
    {7, 6, "", {11,          29.5f,       54.166672f,  78.833344f,  103.5f,      122,
                95.571426f,  114.071426f, 138.738098f, 163.40477f,  114.928574f, 60.285717f,
                128.142853f, 146.642853f, 171.309509f, 195.976196f, 129.214294f, 56.285728f,
                51,          69.5f,       94.166672f,  118.833344f, 143.5f,      162,
                156.71431f,  175.21431f,  169.40477f,  72.166641f,  66.357132f,  84.857132f,
                152.714279f, 171.214279f, 171.499985f, 98.642853f,  98.928574f,  117.428574f,
                91,          109.5f,      134.166672f, 158.833344f, 183.5f,      202}},
    {2,
     3,
     ", antialias=true",
     {100.2818298f, 138.863647f, 104.136368f, 140.2817993f, 132.318176f, 116.209091f}},
    {7,
     6,
     ", antialias=true",
     {11,          29.5f,       54.166672f,  78.833336f,  103.5f,      122,         95.571426f,
      114.071426f, 138.738098f, 163.40477f,  114.928574f, 60.285717f,  128.142853f, 146.642853f,
      171.309525f, 195.976181f, 129.214279f, 56.285728f,  51,          69.5f,       94.166672f,
      118.833344f, 143.5f,      162,         156.71431f,  175.214294f, 169.404755f, 72.166634f,
      66.357124f,  84.857124f,  152.714279f, 171.214279f, 171.499985f, 98.642853f,  98.928574f,
      117.428574f, 91,          109.5f,      134.166672f, 158.833344f, 183.5f,      202}},
    {2,
     3,
     ", method=\"area\"",
     {87.449997f, 133.699997f, 103.149986f, 135.449997f, 130.4999847f, 125.549995f}},
    {7,
     6,
     ", method=\"area\"",
     {11,          29.5f,       47.999996f,  85.000008f,  103.500015f, 121.999969f, 99.800003f,
      118.300018f, 136.799988f, 173.800018f, 115.499992f, 57.199982f,  137.399979f, 155.899979f,
      174.399963f, 211.399994f, 127.499962f, 43.599972f,  51,          69.500008f,  88,
      125.000015f, 143.500031f, 161.999969f, 169.400055f, 187.90004f,  206.400055f, 38.599995f,
      57.100002f,  75.599983f,  155.799927f, 174.299896f, 192.799896f, 76.199966f,  94.699966f,
      113.199921f, 91.000015f,  109.500015f, 128.000015f, 165.000046f, 183.500076f, 201.999985f}},
    {2, 3, ", method=\"nearest\"", {159, 233, 14, 199, 17, 54}},
    {7, 6, ", method=\"nearest\"", {11,  48,  48,  85,  122, 122, 159, 196, 196, 233, 14,
                                    14,  159, 196, 196, 233, 14,  14,  51,  88,  88,  125,
                                    162, 162, 199, 236, 236, 17,  54,  54,  199, 236, 236,
                                    17,  54,  54,  91,  128, 128, 165, 202, 202}},
};

MR_TEST(resize_is_tensorflows)
{
    image m = {5, 4, 1, malloc(20)};
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    for (int i = 0; i < 20; i++)
        m.v[i] = (unsigned char)(i * 37 + 11);
    block_of(&m, 1, &in);
    for (size_t k = 0; k < sizeof tensorflow / sizeof *tensorflow; k++) {
        int h = tensorflow[k].h, w = tensorflow[k].w;
        char function[120];
        snprintf(function, sizeof function, "x => cast(resize(x, [%d, %d]%s), \"float32\")", h, w,
                 tensorflow[k].arguments);
        mr_test_context("%s", function);
        apply(function, &in, &out);
        for (int i = 0; i < h * w; i++)
            mr_eq_f64(((const float *)out.columns[0].data)[i], tensorflow[k].v[i], 1e-3);
    }
    mr_block_reset(&in);
    mr_block_reset(&out);
    free(m.v);
}

MR_TEST(resize_takes_any_numbers)
{
    mr_eq_str(evaluate(1, "x => resize([[[0], [8]], [[8], [16]]], [1, 4])"),
              "[[[4.0], [6.0], [10.0], [12.0]]]");
    mr_eq_str(evaluate(1, "x => cast([[[0], [8]]], \"float64\")",
                       "x => resize(x, [1, 1], method=\"area\")"),
              "[[[4.0]]]");
    mr_eq_str(evaluate(1, "x => cast([[[0], [8]]], \"float16\")", "x => resize(x, [1, 1])"),
              "[[[4.0]]]");
    mr_eq_str(evaluate(1, "x => resize([[[1], [300]]], [1, 4], method=\"nearest\")"),
              "[[[1], [1], [300], [300]]]");
}

MR_TEST(resize_takes_batches_and_computed_sizes)
{
    mr_eq_str(evaluate(2, "x => resize([[[[x]]], [[[7]]]], [1, 2])"),
              "[[[[0.0], [0.0]]], [[[7.0], [7.0]]]]; [[[[1.0], [1.0]]], [[[7.0], [7.0]]]]");
    mr_eq_str(evaluate(3, "x => resize([[[1], [2]]], [1, x], method=\"nearest\")"),
              "[[]]; [[[2]]]; [[[1], [2]]]");
    mr_eq_str(evaluate(2, "x => zeros([x + 1, 2, 1], \"uint8\")", "x => resize(x, [1, 1])"),
              "[[[0.0]]]; [[[0.0]]]");
}

MR_TEST(resize_refuses_what_is_no_image_or_size)
{
    mr_has_str(evaluate(1, "x => resize([[1, 2]], [1, 1])"), "the shape is [1, 2]");
    mr_has_str(evaluate(1, "x => resize([[[\"a\"]]], [1, 1])"), "resize expects an image: numbers");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1])"), "expects [height, width], not 1 numbers");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [-1, 2])"), "negative");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1, 1], method=\"cubic\")"), "cubic");
    mr_has_str(evaluate(1, "x => resize([[[1]]], [1, x - 1])"), "!");
    mr_has_str(evaluate(1, "x => resize(zeros([0, 1, 1]), [1, 1])"), "without pixels");
    mr_has_str(evaluate(1, "x => resize(zeros([x + 2, 1], \"uint8\"), [1, 1])"),
               "the shape is [?, 1]");
}

/* ---- moving pixels ---- */

MR_TEST(pixels_are_moved_as_named)
{
#define FOUR "[[[1], [2], [3]], [[4], [5], [6]]]"
    mr_eq_str(evaluate(1, "x => flip_left_right(" FOUR ")"), "[[[3], [2], [1]], [[6], [5], [4]]]");
    mr_eq_str(evaluate(1, "x => flip_up_down(" FOUR ")"), "[[[4], [5], [6]], [[1], [2], [3]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ")"), "[[[3], [6]], [[2], [5]], [[1], [4]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", 2)"), "[[[6], [5], [4]], [[3], [2], [1]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", -1)"), "[[[4], [1]], [[5], [2]], [[6], [3]]]");
    mr_eq_str(evaluate(1, "x => rotate90(" FOUR ", k=-4)"), FOUR);
    mr_eq_str(evaluate(1, "x => flip_left_right([[[1, 2], [3, 4]]])"), "[[[3, 4], [1, 2]]]");
    mr_eq_str(evaluate(1, "x => flip_left_right([[[true], [false]]])"), "[[[false], [true]]]");
    mr_eq_str(evaluate(1, "x => flip_left_right([[[[1], [2]]], [[[3], [4]]]])"),
              "[[[[2], [1]]], [[[4], [3]]]]");
    mr_eq_str(evaluate(1, "x => flip_up_down(zeros([0, 2, 1]))"), "[]");
    mr_eq_str(evaluate(2, "x => zeros([1, x + 1, 1], \"uint8\") + cast(x, \"uint8\")",
                       "x => flip_left_right(x)"),
              "[[[0]]]; [[[1], [1]]]");
}

/* Pixels of every width in bytes, turned four times, are what they were. */
MR_TEST(four_quarter_turns_change_nothing)
{
    for (int c = 1; c <= 9; c++) {
        image m = noise(3, 5, c, (uint64_t)c);
        mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
        block_of(&m, 1, &in);
        apply("x => rotate90(rotate90(flip_up_down(flip_left_right(x)), k=3), k=-1)", &in, &out);
        mr_eq_mem(out.columns[0].data, m.v, (size_t)(15 * c));
        mr_block_reset(&in);
        mr_block_reset(&out);
        free(m.v);
    }
}

MR_TEST(parts_are_cut_and_frames_put_round)
{
#define NINE "[[[1], [2], [3]], [[4], [5], [6]], [[7], [8], [9]]]"
    mr_eq_str(evaluate(1, "x => crop(" NINE ", 1, 0, 2, 2)"), "[[[4], [5]], [[7], [8]]]");
    mr_eq_str(evaluate(3, "x => crop(" NINE ", x, 2 - x, 1, 1)"), "[[[3]]]; [[[5]]]; [[[7]]]");
    mr_eq_str(evaluate(3, "x => crop(" NINE ", 0, 0, 1, x)"), "[[]]; [[[1]]]; [[[1], [2]]]");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 2, 0, 2, 2)"), "exceed the image's 3");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 0, -1, 2, 2)"), "negative");
    mr_has_str(evaluate(4, "x => crop(" NINE ", x, 0, 1, 1)"),
               "[[[7]]]; !crop of 1 x 1 at row 3, column 0 leaves an image of 3 x 3");
    mr_has_str(evaluate(3, "x => crop(" NINE ", 0, x, 1, 2)"),
               "[[[2], [3]]]; !crop of 1 x 2 at row 0, column 2 leaves an image of 3 x 3");
    mr_has_str(evaluate(1, "x => crop(" NINE ", 0, 0, x + 4, 1)"), "crop of 4 x 1 from an image");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 0.5)"), "[[[1], [2], [3]], [[4], [5], [6]], "
                                                               "[[7], [8], [9]]]");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 0.3)"), "[[[5]]]");
    mr_eq_str(evaluate(1, "x => central_crop(" NINE ", 1)"), NINE);
    mr_has_str(evaluate(1, "x => central_crop(" NINE ", 0)"), "at most 1");
    mr_eq_str(evaluate(1, "x => pad_to([[[1]]], [2, 4])"),
              "[[[0], [1], [0], [0]], [[0], [0], [0], [0]]]");
    mr_eq_str(evaluate(1, "x => pad_to([[[1.5]]], [1, 2], value=-0.5)"), "[[[1.5], [-0.5]]]");
    mr_eq_str(evaluate(1, "x => pad_to(" NINE ", [3, 3])"), NINE);
    mr_has_str(evaluate(1, "x => pad_to(" NINE ", [2, 4])"), "3 rows, more than 2");
    mr_has_str(evaluate(1, "x => pad_to(" NINE ", [3, x + 2])"), "larger than 3 x 2");
    mr_has_str(evaluate(1, "x => pad_to(cast([[[1]]], \"uint8\"), [2, 2], value=256)"),
               "256 is not a valid uint8");
    mr_has_str(evaluate(1, "x => pad_to([[[1]]], [2, 2], value=0.5)"), "0.5 is not a valid int64");
    mr_eq_str(evaluate(1, "x => pad_to(cast([[[1]]], \"int8\"), [1, 2], value=-128)"),
              "[[[1], [-128]]]");
}

MR_TEST(values_are_weighed_and_scaled)
{
    mr_eq_str(evaluate(1, "x => grayscale([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])"),
              "[[[0.2989], [0.587], [0.114]]]");
    mr_eq_str(evaluate(1, "x => grayscale(cast([[[255, 255, 255], [10, 20, 30]]], \"uint8\"))"),
              "[[[255], [18]]]");
    mr_eq_str(evaluate(1, "x => grayscale(cast([[[101, 100, 95]]], \"int8\"))"), "[[[100]]]");
    mr_has_str(evaluate(1, "x => grayscale([[[1.0]]])"), "expects 3 channels, not 1");
    mr_has_str(evaluate(1, "x => grayscale(zeros([1, 1, x + 1]))"), "expects 3 channels, not 1");
    mr_eq_str(
        evaluate(1, "x => normalize(cast([[[10, 20]]], \"uint8\"), mean=[4, 5], stddev=[2, 3])"),
        "[[[3.0, 5.0]]]");
    mr_eq_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1], [2])"), "[[[0.0, 0.5, 1.0]]]");
    mr_has_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1, 2], [2])"), "mean has 2 numbers");
    mr_has_str(evaluate(1, "x => normalize([[[1, 2, 3]]], [1], [0])"), "one is 0");
    mr_has_str(evaluate(1, "x => normalize(zeros([1, 1, x + 2]), [1, 2, 3], [1])"), "do not match");
}

/* ---- JPEG ---- */

/* An image as a literal of the text form is long: the block is made by hand. */
static void block_of_strings(const mr_bytes *v, size_t n, mr_block *b)
{
    mr_status st;
    mr_ok(mr_block_prepare(b, 1, &st), &st);
    b->rows = n;
    mr_ok(mr_array_alloc(&b->columns[0], MR_STRING, 0, NULL, n, &st), &st);
    memcpy(b->columns[0].data, v, n * sizeof *v);
}

static mr_bytes jpeg_of(const image *m, int quality)
{
    mr_status st;
    void *data;
    size_t size;
    mr_ok(mr__jpeg_encode(m->v, m->h, m->w, m->c, quality, &data, &size, &st), &st);
    return (mr_bytes){data, size};
}

/* The pixels are those that libjpeg-turbo decodes, for color, gray and each ratio. */
MR_TEST(a_jpeg_is_decoded_as_by_its_library)
{
    static const int sizes[][2] = {{1, 1}, {8, 8}, {33, 47}, {64, 100}};
    for (size_t i = 0; i < 4; i++)
        for (int c = 1; c <= 3; c += 2)
            for (int as = 1; as <= 3; as += 2)
                for (int ratio = 1; ratio <= 8; ratio *= 2) {
                    image m = scene(sizes[i][0], sizes[i][1], c);
                    mr_bytes s = jpeg_of(&m, 90);
                    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
                    char function[80];
                    snprintf(function, sizeof function,
                             "x => decode_jpeg(x, channels=%d, ratio=%d)", as, ratio);
                    mr_test_context("%s of %d x %d x %d", function, m.h, m.w, c);
                    block_of_strings(&s, 1, &in);
                    apply(function, &in, &out);
                    int h = (m.h + ratio - 1) / ratio, w = (m.w + ratio - 1) / ratio;
                    const mr_array *a = &out.columns[0];
                    mr_eq_i64(a->shape[0], h);
                    mr_eq_i64(a->shape[1], w);
                    mr_eq_i64(a->shape[2], as);
                    unsigned char *want = malloc((size_t)(h * w * as));
                    tjhandle tj = tjInitDecompress();
                    mr_check(tjDecompress2(tj, (const unsigned char *)s.data, s.size, want, w, 0, h,
                                           as == 1 ? TJPF_GRAY : TJPF_RGB, 0) == 0);
                    mr_eq_mem(a->data, want, (size_t)(h * w * as));
                    tjDestroy(tj);
                    free(want);
                    mr_block_reset(&in);
                    mr_block_reset(&out);
                    mr_free((void *)(uintptr_t)s.data);
                    free(m.v);
                }
    mr_test_context("%s", "");
}

MR_TEST(images_of_several_sizes_make_a_ragged_column)
{
    image a = scene(9, 12, 3), b = scene(5, 6, 3);
    mr_bytes s[] = {jpeg_of(&a, 90), jpeg_of(&b, 90), {"\xFF\xD8\xFFnothing", 10}};
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_spec *spec = mr_spec_tensor(MR_STRING, 0, NULL), *out_spec = NULL;
    mr_status st;
    block_of_strings(s, 3, &in);
    mr_ok(evaluate_step("x => decode_image(x)", spec, &in, &out_spec, &out, &errors, &st), &st);
    mr_eq_u64(errors.n, 1);
    mr_eq_u64(errors.v[0].row, 2);
    mr_has_str(errors.v[0].status.message, "decode_image: the header of a JPEG image: ");
    mr_eq_u64(out.rows, 2);
    mr_eq_i64(out.columns[0].storage, MR_RAGGED);
    mr_eq_i64(mr_array_row_shape(&out.columns[0], 0)[0], 9);
    mr_eq_i64(mr_array_row_shape(&out.columns[0], 1)[1], 6);
    mr_row_errors_reset(&errors);
    mr_spec_unref(spec);
    mr_spec_unref(out_spec);
    mr_block_reset(&in);
    mr_block_reset(&out);
    for (int i = 0; i < 2; i++)
        mr_free((void *)(uintptr_t)s[i].data);
    free(a.v);
    free(b.v);
}

MR_TEST(a_jpeg_comes_back_nearly_as_it_was)
{
    mr_eq_str(evaluate(1, "x => cast(ones([8, 8, 3]) * 100.0, \"uint8\")",
                       "x => encode_jpeg(x, quality=100)", "x => decode_jpeg(x)",
                       "x => (size(x), min(x), max(x))"),
              "(192, 100, 100)");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 2], \"uint8\"))"), "1 or 3 channels");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 3]))"), "an image: uint8");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([x, 2, 3], \"uint8\"))"), "at most 65500 rows");
    mr_has_str(evaluate(1, "x => encode_jpeg(zeros([2, 2, 3], \"uint8\"), quality=0)"), "quality");
    mr_eq_str(evaluate(1, "x => encode_jpeg(zeros([2, 8, 8, 3], \"uint8\"))", "x => decode_jpeg(x)",
                       "x => (size(x), max(x))"),
              "(384, 0)");
}

MR_TEST(what_is_no_image_is_named)
{
    mr_has_str(evaluate(1, "x => decode_jpeg(\"\")"), "decode_jpeg: expected a JPEG image, "
                                                      "found an empty string");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"GIF89a\")"),
               "not a JPEG image: 6 bytes that begin with 47 49 46");
    mr_has_str(evaluate(1, "x => decode_png(encode_jpeg(zeros([1, 1, 1], \"uint8\")))"),
               "expected a PNG image, found a JPEG image");
    mr_has_str(evaluate(1, "x => decode_image(\"x\")"), "not a JPEG or PNG image");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", channels=4)"), "1 channel (gray) or 3 (RGB)");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", channels=5)"), "channels");
    mr_has_str(evaluate(1, "x => decode_jpeg(\"a\", ratio=3)"), "1, 2, 4 or 8, not 3");
}

static mr_code decode(mr__image_decoder *d, const void *v, size_t n, void *pixels, mr_status *st)
{
    mr__image_info info;
    mr_code rc = mr__image_header(d, MR__IMAGE_ANY, v, n, 0, &info, st);
    return rc == MR_OK ? mr__image_decode(d, &info, v, n, pixels, st) : rc;
}

/* Bytes with n more at `at`. Owned: free. */
static unsigned char *with(const mr_bytes *s, size_t at, const void *more, size_t n)
{
    unsigned char *v = malloc(s->size + n);
    memcpy(v, s->data, at);
    memcpy(v + at, more, n);
    memcpy(v + at + n, s->data + at, s->size - at);
    return v;
}

/* The start of segment `kind`. */
static size_t segment(const mr_bytes *s, char kind)
{
    size_t at = 2;
    while (s->data[at + 1] != kind)
        at += 2 + ((size_t)(unsigned char)s->data[at + 2] << 8 | (unsigned char)s->data[at + 3]);
    return at;
}

/* Every cut of an image is an error, whatever harmless warnings come before it; and whole it is
 * what it is without them. */
MR_TEST(a_cut_image_is_an_error)
{
    static const struct {
        const char *what, *bytes;
        size_t n;
        char before;
    } warned[] = {{"nothing", "", 0, '\xDA'},
                  {"bytes between segments", "\1\1\1", 3, '\xDA'},
                  {"another byte and fill bytes", "x\xFF\xFF\xFF", 4, '\xC0'},
                  {"another version of JFIF", "\xFF\xE0\0\x10JFIF\0\3\1\0\0\1\0\1\0\0", 18, '\xDB'},
                  {"a transform without a name",
                   "\xFF\xEE\0\x0E"
                   "Adobe\0\x64\0\0\0\0\7",
                   16, '\xDB'}};
    image m = scene(40, 56, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr__image_decoder d = {0};
    mr_status st;
    unsigned char whole[40 * 56 * 3], pixels[40 * 56 * 3];
    mr_ok(decode(&d, s.data, s.size, whole, &st), &st);
    for (size_t k = 0; k < sizeof warned / sizeof *warned; k++) {
        size_t size = s.size + warned[k].n;
        unsigned char *v = with(&s, segment(&s, warned[k].before), warned[k].bytes, warned[k].n);
        for (size_t n = 0; n <= size; n++) {
            mr_test_context("after %s, the first %zu of %zu bytes", warned[k].what, n, size);
            unsigned char *part = malloc(n + 1);
            memcpy(part, v, n);
            if (n == size) {
                mr_ok(decode(&d, part, n, pixels, &st), &st);
                mr_eq_mem(pixels, whole, sizeof whole);
            } else if (n < size - 2)
                mr_code_is(decode(&d, part, n, pixels, &st), MR_INVALID_ARGUMENT, &st);
            free(part);
        }
        free(v);
    }
    mr__image_decoder_reset(&d);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* A JPEG whose component i has sampling factors sampling[2 * i] x sampling[2 * i + 1], in a scan
 * for each component or in one. Owned: free. */
static mr_bytes sampled(const image *m, const char *sampling, bool apart)
{
    static const jpeg_scan_info scans[] = {
        {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}, {1, {3}, 0, 63, 0, 0}};
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_height = (JDIMENSION)m->h;
    c.image_width = (JDIMENSION)m->w;
    c.input_components = m->c;
    c.in_color_space = m->c == 1 ? JCS_GRAYSCALE : m->c == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    for (int i = 0; i < m->c; i++) {
        c.comp_info[i].h_samp_factor = sampling[2 * i] - '0';
        c.comp_info[i].v_samp_factor = sampling[2 * i + 1] - '0';
    }
    if (apart) {
        c.scan_info = scans;
        c.num_scans = m->c;
    }
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < m->h; y++) {
        JSAMPROW row = m->v + y * m->w * m->c;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (mr_bytes){(char *)out, n};
}

/* Only long waves, which survive any sampling. The fourth ink is white. */
static image waves(int h, int w, int c)
{
    image m = noise(h, w, c, 1);
    for (int i = 0; i < h * w * c; i++)
        m.v[i] = i % c == 3 ? 255
                            : (unsigned char)(128 + 90 * sin((i / c % w + 2.0 * (i % c)) / 25.0) *
                                                        cos((double)i / c / w / 30.0));
    return m;
}

static void check_sampled(int c, const char *sampling, bool apart)
{
    image m = waves(75, 101, c);
    mr_bytes s = sampled(&m, sampling, apart);
    mr__image_decoder d = {0};
    mr_status st;
    unsigned char *pixels = malloc((size_t)(m.h * m.w * 3));
    double sum = 0;
    mr_test_context("%d components, sampled %s%s", c, sampling, apart ? ", apart" : "");
    mr_ok(decode(&d, s.data, s.size, pixels, &st), &st);
    for (int i = 0; i < m.h * m.w; i++)
        for (int k = 0; k < 3; k++)
            sum += fabs((double)pixels[c == 1 ? i : 3 * i + k] - m.v[i * c + (c == 1 ? 0 : k)]);
    mr_check(sum / (3 * m.h * m.w) < 4);
    mr_code_is(decode(&d, s.data, s.size * 3 / 4, pixels, &st), MR_INVALID_ARGUMENT, &st);
    mr__image_decoder_reset(&d);
    free((void *)(uintptr_t)s.data);
    free(pixels);
    free(m.v);
}

/* Those that libjpeg reads: of each axis every factor divides the largest. */
MR_TEST(a_jpeg_is_decoded_whatever_its_sampling_factors)
{
    static const char *const others[] = {"111122", "112211", "211111",
                                         "121121", "221221", "411141"};
    char sampling[9] = "";
    for (int h = 1; h <= 4; h++)
        for (int v = 1; v <= 4; v++) {
            snprintf(sampling, sizeof sampling, "%d%d1111", h, v);
            if (h * v <= 8) /* blocks of a scan with several components have a limit */
                check_sampled(3, sampling, false);
            check_sampled(3, sampling, true);
            snprintf(sampling, sizeof sampling, "%d%d", h, v);
            check_sampled(1, sampling, false);
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_sampled(3, others[i], false);
    check_sampled(4, "11111111", false);
    check_sampled(4, "22111111", false);
    check_sampled(4, "22222211", true);
    check_sampled(4, "41111111", false);
    check_sampled(4, "22111122", false);
}

/* Each scan of a large image may take a few bytes, and long to decode. */
MR_TEST(a_jpeg_of_very_many_scans_is_refused)
{
    image m = waves(16, 16, 3);
    mr_bytes s = sampled(&m, "111111", true);
    size_t from = segment(&s, '\xDA'), to = from + 2;
    while (s.data[to] != '\xFF' || s.data[to + 1] == 0)
        to++; /* to what follows the first scan */
    mr__image_decoder d = {0};
    mr_status st;
    unsigned char pixels[16 * 16 * 3];
    for (size_t scans = 400; scans <= 600; scans += 200) {
        char *more = malloc(scans * (to - from));
        for (size_t i = 0; i < scans; i++)
            memcpy(more + i * (to - from), s.data + from, to - from);
        unsigned char *v = with(&s, to, more, scans * (to - from));
        mr_code rc = decode(&d, v, s.size + scans * (to - from), pixels, &st);
        mr_code_is(rc, scans > 500 ? MR_INVALID_ARGUMENT : MR_OK, &st);
        if (rc != MR_OK)
            mr_has_str(st.message, "more than 500 scans");
        free(more);
        free(v);
    }
    mr__image_decoder_reset(&d);
    free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* ---- orientation ---- */

/* EXIF data with an orientation, after another entry. */
static size_t exif_of(int orientation, bool little, unsigned char *v)
{
    static const unsigned char both[][34] = {
        {'M', 'M', 0, 42, 0, 0, 0, 8, 0,  2, 1, 0, 0, 4, 0,
         0,   0,   1, 0,  0, 0, 9, 1, 18, 0, 3, 0, 0, 0, 1},
        {'I', 'I', 42, 0, 8, 0, 0, 0, 2, 0, 0, 1, 4, 0, 1, 0, 0, 0, 9, 0, 0, 0, 18, 1, 3, 0, 1}};
    memcpy(v, both[little], sizeof both[little]);
    v[little ? 30 : 31] = (unsigned char)orientation;
    return sizeof both[little];
}

/* The stored row and column of pixel (y, x) of the upright image, of h rows of w. Of EXIF's
 * orientations the name says where row 0 and column 0 of the stored image are seen. */
static void stored_at(int orientation, int h, int w, int y, int x, int *row, int *column)
{
    bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    bool bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    int from_side = right ? w - 1 - x : x, from_top = bottom ? h - 1 - y : y;
    *row = orientation >= 5 ? from_side : from_top;
    *column = orientation >= 5 ? from_top : from_side;
}

/* The image at s, upright by `function`, has the pixels that `plain` gives of it. */
static void check_upright(const mr_bytes *s, int orientation, const char *function,
                          const char *plain)
{
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY, stored = MR_BLOCK_EMPTY;
    block_of_strings(s, 1, &in);
    apply(function, &in, &out);
    apply(plain, &in, &stored);
    const mr_array *a = &out.columns[0], *b = &stored.columns[0];
    mr_test_context("orientation %d: %s", orientation, function);
    int h = (int)a->shape[0], w = (int)a->shape[1], row, column;
    size_t pixel = (size_t)a->shape[2] * mr_dtype_size(a->dtype);
    mr_eq_i64(h, b->shape[orientation >= 5]);
    mr_eq_i64(w, b->shape[orientation < 5]);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            stored_at(orientation, h, w, y, x, &row, &column);
            mr_eq_mem((char *)a->data + (size_t)(y * w + x) * pixel,
                      (char *)b->data + (size_t)(row * (int)b->shape[1] + column) * pixel, pixel);
        }
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_block_reset(&stored);
}

MR_TEST(images_are_turned_as_their_exif_data_say)
{
    image m = scene(21, 34, 3);
    mr_bytes s = jpeg_of(&m, 95);
    for (int i = 0; i < 2 * 10; i++) {
        unsigned char exif[50] = "\xFF\xE1\0\x2A\105xif\0";
        int orientation = i / 2, turned = orientation < 1 || orientation > 8 ? 1 : orientation;
        size_t n = 10 + exif_of(orientation, i % 2, exif + 10);
        unsigned char *v = with(&s, 2, exif, n);
        const mr_bytes all = {(char *)v, s.size + n};
        check_upright(&all, turned, "x => decode_jpeg(x, orientation=true)", "x => decode_jpeg(x)");
        check_upright(&all, turned, "x => decode_image(x, orientation=true, channels=1)",
                      "x => decode_image(x, channels=1, orientation=false)");
        check_upright(&all, turned, "x => decode_jpeg(x, orientation=true, ratio=2)",
                      "x => decode_jpeg(x, ratio=2)");
        free(v);
    }
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* A resize sees the upright image: its height decides at what size the stored one is decoded. */
MR_TEST(an_image_that_is_turned_and_resized_keeps_its_pixels)
{
    image m = scene(480, 40, 3);
    mr_bytes s = jpeg_of(&m, 95);
    unsigned char exif[50] = "\xFF\xE1\0\x2A\105xif\0";
    size_t n = 10 + exif_of(6, true, exif + 10);
    unsigned char *v = with(&s, 2, exif, n);
    const mr_bytes all = {(char *)v, s.size + n};
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY, whole = MR_BLOCK_EMPTY;
    double sum = 0;
    block_of_strings(&all, 1, &in);
    apply("x => resize(decode_jpeg(x, orientation=true), [10, 30], antialias=true)", &in, &out);
    apply("x => resize(decode_jpeg(x, orientation=true, ratio=1), [10, 30], antialias=true)", &in,
          &whole);
    const float *a = out.columns[0].data, *b = whole.columns[0].data;
    for (int i = 0; i < 900; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    mr_check(sum > 0 && sum / 900 < 2);
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_block_reset(&whole);
    free(v);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* Damaged EXIF data say nothing; cut anywhere, they lead to no byte after them. */
MR_TEST(damaged_exif_data_turn_nothing)
{
    unsigned char exif[34];
    for (int little = 0; little < 2; little++) {
        size_t n = exif_of(6, little, exif);
        mr_eq_i64(mr__exif_orientation(exif, n), 6);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *part = malloc(cut + 1);
            memcpy(part, exif, cut);
            mr_eq_i64(mr__exif_orientation(part, cut), 1);
            free(part);
        }
        static const int places[] = {0, 2, 3, 4, 7, 22, 23, 24, 25};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            mr_test_context("byte %d", places[i]);
            exif[places[i]] ^= 0x41;
            mr_eq_i64(mr__exif_orientation(exif, n), 1);
            exif[places[i]] ^= 0x41;
        }
    }
}

MR_TEST(bytes_between_segments_do_no_harm)
{
    image m = scene(16, 16, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    unsigned char *more = malloc(s.size + 3), want[16 * 16 * 3], got[16 * 16 * 3];
    memcpy(more, s.data, s.size - 2);
    memcpy(more + s.size - 2, "abc\xFF\xD9", 5);
    mr_ok(mr__image_header(&d, MR__IMAGE_ANY, s.data, s.size, 0, &info, &st), &st);
    mr_ok(mr__image_decode(&d, &info, s.data, s.size, want, &st), &st);
    mr_ok(mr__image_decode(&d, &info, more, s.size + 3, got, &st), &st);
    mr_eq_mem(want, got, sizeof want);
    mr__image_decoder_reset(&d);
    free(more);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

MR_TEST(an_error_names_file_and_record)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    image m = scene(64, 64, 3);
    mr_bytes s = jpeg_of(&m, 90);
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("a.tfrecord"), NULL, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size - 40, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, s.data, s.size, &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    char text[512], shown[2048];
    snprintf(text, sizeof text, "tfrecord(\"%s\").map(x => decode_jpeg(x))",
             mr_test_path("a.tfrecord"));
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_test_graph(text);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_eq_i64(b.columns[0].shape[1], 64);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_INVALID_ARGUMENT, &st);
    mr_status_format(&st, shown, sizeof shown);
    mr_has_str(shown, "a.tfrecord: record 1 at byte ");
    mr_has_str(shown, "decode_jpeg: decoding a JPEG image: ");
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* A resize that averages may decode at a smaller size: about the same pixels. One that does not, or
 * a ratio that is given, sees all of them. */
MR_TEST(a_resize_that_averages_is_about_the_same_of_a_smaller_image)
{
    static const char *const ways[] = {"antialias=true", "antialias=false", "method=\"area\"",
                                       "method=\"nearest\""};
    image m = scene(240, 320, 3);
    mr_bytes s = jpeg_of(&m, 95);
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY, whole = MR_BLOCK_EMPTY;
    block_of_strings(&s, 1, &in);
    for (int kind = 0; kind < 4; kind++)
        for (int h = 14; h <= 130; h += 29) {
            char function[160];
            const char *how = ways[kind];
            snprintf(function, sizeof function,
                     "x => cast(resize(decode_jpeg(x), [%d, %d], %s), \"float32\")", h, h, how);
            apply(function, &in, &out);
            snprintf(function, sizeof function,
                     "x => cast(resize(decode_jpeg(x, ratio=1), [%d, %d], %s), \"float32\")", h, h,
                     how);
            apply(function, &in, &whole);
            mr_test_context("%s", function);
            const float *a = out.columns[0].data, *b = whole.columns[0].data;
            double sum = 0;
            size_t n = (size_t)(3 * h * h);
            for (size_t i = 0; i < n; i++)
                sum += fabs((double)a[i] - (double)b[i]);
            if (kind)
                mr_eq_f64(sum, 0, 0);
            else
                mr_check(sum / (double)n < 2);
            /* It does take another way where eight times the size is there. */
            if (!kind && h == 14)
                mr_check(sum > 0);
        }
    mr_block_reset(&in);
    mr_block_reset(&out);
    mr_block_reset(&whole);
    mr_free((void *)(uintptr_t)s.data);
    free(m.v);
}

/* ---- PNG ---- */

static mr_bytes png_of(const image *m, int type, int depth, bool palette_alpha)
{
    struct spng_ihdr header = {.width = (uint32_t)m->w,
                               .height = (uint32_t)m->h,
                               .bit_depth = (uint8_t)depth,
                               .color_type = (uint8_t)type};
    struct spng_plte palette = {.n_entries = 4};
    struct spng_trns alpha = {.n_type3_entries = 2, .type3_alpha = {7, 9}};
    for (uint32_t i = 0; i < 4; i++)
        palette.entries[i] = (struct spng_plte_entry){
            .red = (uint8_t)(i * 10), .green = (uint8_t)(i * 20), .blue = (uint8_t)(i * 30)};
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    int error;
    spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
    mr_check(spng_set_ihdr(png, &header) == 0);
    if (type == SPNG_COLOR_TYPE_INDEXED)
        mr_check(spng_set_plte(png, &palette) == 0);
    if (palette_alpha)
        mr_check(spng_set_trns(png, &alpha) == 0);
    size_t bytes = (size_t)(m->h * m->w * m->c), size;
    mr_check(spng_encode_image(png, m->v, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE) == 0);
    void *data = spng_get_png_buffer(png, &size, &error);
    mr_check(data != NULL);
    spng_ctx_free(png);
    return (mr_bytes){data, size};
}

static const char *decoded_png_as(const mr_bytes *s, int channels, mr_dtype t)
{
    static char text[512];
    mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
    const mr_row_errors none = MR_ROW_ERRORS_EMPTY;
    char function[80];
    snprintf(function, sizeof function, "x => decode_png(x, channels=%d, dtype=\"%s\")", channels,
             mr_dtype_name(t));
    block_of_strings(s, 1, &in);
    apply(function, &in, &out);
    mr_eq_i64(out.columns[0].dtype, t);
    mr_spec *spec = mr_spec_tensor(t, 3, out.columns[0].shape);
    evaluate_print(spec, &out, &none, text, sizeof text);
    mr_spec_unref(spec);
    mr_block_reset(&in);
    mr_block_reset(&out);
    return text;
}

/* What decode_png says of a damaged image. */
static const char *png_error(const mr_bytes *s)
{
    static mr_status st;
    mr__image_decoder d = {0};
    unsigned char pixels[64];
    mr_code_is(decode(&d, s->data, s->size, pixels, &st), MR_INVALID_ARGUMENT, &st);
    return st.message;
}

static const char *decoded_png(const mr_bytes *s, int channels)
{
    return decoded_png_as(s, channels, MR_UINT8);
}

MR_TEST(a_png_is_decoded_to_any_channels)
{
    unsigned char v[] = {1, 2, 3, 4, 0, 3, 100, 200};
    image gray = {1, 2, 1, v}, both = {1, 2, 2, v}, rgb = {1, 2, 3, v}, rgba = {1, 2, 4, v};
    mr_bytes s = png_of(&gray, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[1], [2]]]");
    mr_eq_str(decoded_png(&s, 2), "[[[1, 255], [2, 255]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 1, 1], [2, 2, 2]]]");
    mr_eq_str(decoded_png(&s, 4), "[[[1, 1, 1, 255], [2, 2, 2, 255]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&both, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2], [3, 4]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[1], [3]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 1, 1], [3, 3, 3]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgb, SPNG_COLOR_TYPE_TRUECOLOR, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2, 3], [4, 0, 3]]]");
    mr_eq_str(decoded_png(&s, 1), "[[[2], [2]]]");
    mr_eq_str(decoded_png(&s, 4), "[[[1, 2, 3, 255], [4, 0, 3, 255]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgba, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[1, 2, 3, 4], [0, 3, 100, 200]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[1, 2, 3], [0, 3, 100]]]");
    mr_eq_str(decoded_png(&s, 2), "[[[2, 4], [13, 200]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&gray, SPNG_COLOR_TYPE_INDEXED, 8, false);
    mr_eq_str(decoded_png(&s, 0), "[[[10, 20, 30], [20, 40, 60]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&gray, SPNG_COLOR_TYPE_INDEXED, 8, true);
    mr_eq_str(decoded_png(&s, 0), "[[[10, 20, 30, 9], [20, 40, 60, 255]]]");
    mr_eq_str(decoded_png(&s, 3), "[[[10, 20, 30], [20, 40, 60]]]");
    free((void *)(uintptr_t)s.data);
    /* Samples of 16 bits, in the machine's order: the upper 8 remain. */
    uint16_t wide[] = {0x1234, 0xFFEE};
    image deep = {1, 4, 1, (unsigned char *)wide};
    deep.w = 2;
    deep.c = 2;
    s = png_of(&deep, SPNG_COLOR_TYPE_GRAYSCALE, 16, false);
    mr_eq_str(decoded_png(&s, 0), "[[[18], [255]]]");
    free((void *)(uintptr_t)s.data);
}

/* Samples of 16 bits come whole; fewer bits are spread over 16. */
MR_TEST(a_png_is_decoded_to_16_bits)
{
    uint16_t v[] = {0x1234, 0xFFEE, 0, 1000, 2000, 65535, 7, 8};
    unsigned char narrow[] = {1, 3}, nibbles[] = {0x1F};
    image gray = {1, 2, 2, (unsigned char *)v}, both = {1, 2, 4, (unsigned char *)v},
          rgb = {1, 2, 6, (unsigned char *)v}, rgba = {1, 2, 8, (unsigned char *)v},
          bytes = {1, 2, 1, narrow}, halves = {1, 1, 1, nibbles};
    mr_bytes s = png_of(&gray, SPNG_COLOR_TYPE_GRAYSCALE, 16, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[4660], [65518]]]");
    mr_eq_str(decoded_png_as(&s, 2, MR_UINT16), "[[[4660, 65535], [65518, 65535]]]");
    mr_eq_str(decoded_png_as(&s, 3, MR_UINT16), "[[[4660, 4660, 4660], [65518, 65518, 65518]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&both, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 16, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[4660, 65518], [0, 1000]]]");
    mr_eq_str(decoded_png_as(&s, 1, MR_UINT16), "[[[4660], [0]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgb, SPNG_COLOR_TYPE_TRUECOLOR, 16, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[4660, 65518, 0], [1000, 2000, 65535]]]");
    mr_eq_str(decoded_png_as(&s, 1, MR_UINT16), "[[[39852], [8944]]]");
    mr_eq_str(decoded_png_as(&s, 4, MR_UINT16),
              "[[[4660, 65518, 0, 65535], [1000, 2000, 65535, 65535]]]");
    mr_eq_str(decoded_png(&s, 0), "[[[18, 255, 0], [3, 7, 255]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&rgba, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 16, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[4660, 65518, 0, 1000], [2000, 65535, 7, 8]]]");
    mr_eq_str(decoded_png_as(&s, 3, MR_UINT16), "[[[4660, 65518, 0], [2000, 65535, 7]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&bytes, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[257], [771]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&bytes, SPNG_COLOR_TYPE_INDEXED, 8, true);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16),
              "[[[2570, 5140, 7710, 2313], [7710, 15420, 23130, 65535]]]");
    free((void *)(uintptr_t)s.data);
    s = png_of(&halves, SPNG_COLOR_TYPE_GRAYSCALE, 4, false);
    mr_eq_str(decoded_png_as(&s, 0, MR_UINT16), "[[[4369]]]");
    mr_eq_str(decoded_png(&s, 0), "[[[17]]]");
    free((void *)(uintptr_t)s.data);
    mr_has_str(evaluate(1, "x => decode_png(\"a\", dtype=\"int32\")"), "\"uint8\" or \"uint16\"");
}

/* Makes room for n bytes of data, in a chunk of this type, in front of byte `at`. */
static void put_chunk(mr_bytes *s, size_t at, const char *type, const void *data, size_t n)
{
    unsigned char *chunk = malloc(n + 12);
    for (int i = 0; i < 4; i++)
        chunk[i] = (unsigned char)(n >> (24 - 8 * i));
    memcpy(chunk + 4, type, 4);
    memcpy(chunk + 8, data, n);
    uint32_t crc = (uint32_t)crc32(0, chunk + 4, (unsigned)n + 4);
    for (int i = 0; i < 4; i++)
        chunk[8 + n + (size_t)i] = (unsigned char)(crc >> (24 - 8 * i));
    unsigned char *v = with(s, at, chunk, n + 12);
    free(chunk);
    free((void *)(uintptr_t)s->data);
    *s = (mr_bytes){(char *)v, s->size + n + 12};
}

enum { AFTER_HEADER = 33, END_CHUNK = 12 };

/* However many, large, odd or damaged they are. */
MR_TEST(chunks_that_no_pixel_depends_on_change_nothing)
{
    unsigned char v[] = {1, 2, 3, 4};
    image m = {1, 4, 1, v};
    mr_bytes s = png_of(&m, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    for (int i = 0; i < 3000; i++)
        put_chunk(&s, AFTER_HEADER, "tEXt", "Comment\0text", 12);
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2], [3], [4]]]");
    for (int i = 0; i < 1500; i++)
        put_chunk(&s, s.size - END_CHUNK, "tEXt", "Comment\0text", 12);
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2], [3], [4]]]");
    put_chunk(&s, AFTER_HEADER, "tEXt", "\0", 1);
    put_chunk(&s, AFTER_HEADER, "zTXt", "a\0\0no zlib", 9);
    put_chunk(&s, AFTER_HEADER, "iCCP", "profile\0\0junk", 13);
    put_chunk(&s, AFTER_HEADER, "gAMA", "\0\0\0\0", 4);
    put_chunk(&s, AFTER_HEADER, "eXIf", "junk", 4);
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2], [3], [4]]]");
    ((char *)(uintptr_t)s.data)[AFTER_HEADER + 9] ^= 1; /* its checksum is wrong now */
    mr_eq_str(decoded_png(&s, 0), "[[[1], [2], [3], [4]]]");
    put_chunk(&s, AFTER_HEADER, "HARD", "what must be known", 18);
    mr_has_str(png_error(&s), "decoding a PNG image: ");
    free((void *)(uintptr_t)s.data);
}

MR_TEST(a_png_is_turned_as_its_exif_chunk_says)
{
    unsigned char exif[50];
    for (int i = 0; i < 16; i++) {
        uint16_t v[12];
        for (uint16_t k = 0; k < 12; k++)
            v[k] = (uint16_t)(k * 1000 + 7);
        image m = {2, 3, 4, (unsigned char *)v};
        mr_bytes s = png_of(&m, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 16, false);
        size_t n = exif_of(1 + i / 2, i % 2, exif);
        put_chunk(&s, i % 3 ? AFTER_HEADER : s.size - END_CHUNK, "eXIf", exif, n);
        check_upright(&s, 1 + i / 2, "x => decode_image(x, orientation=true)",
                      "x => decode_image(x)");
        mr__image_decoder d = {.orient = true};
        mr__image_info info;
        mr_status st;
        ((char *)(uintptr_t)s.data)[i % 3 ? AFTER_HEADER + 10 : s.size - END_CHUNK - 6] ^= 1;
        mr_code_is(mr__image_header(&d, MR__IMAGE_PNG, s.data, s.size, 0, &info, &st),
                   MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "eXIf chunk is damaged");
        free((void *)(uintptr_t)s.data);
    }
}

MR_TEST(a_damaged_png_is_an_error)
{
    unsigned char v[] = {1, 2, 3, 4, 0, 3, 100, 200};
    image gray = {2, 4, 1, v};
    mr_bytes s = png_of(&gray, SPNG_COLOR_TYPE_GRAYSCALE, 8, false);
    unsigned char *part = malloc(s.size);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    unsigned char pixels[8];
    /* The checksum of the last chunk, which is empty, is not looked at. */
    for (size_t n = 0; n < s.size - 4; n++) {
        mr_test_context("the first %zu bytes", n);
        memcpy(part, s.data, n);
        mr_code rc = mr__image_header(&d, MR__IMAGE_PNG, part, n, 0, &info, &st);
        if (rc == MR_OK)
            rc = mr__image_decode(&d, &info, part, n, pixels, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    }
    for (size_t n = 8; n < s.size - 4; n++) {
        mr_test_context("byte %zu", n);
        memcpy(part, s.data, s.size);
        part[n] ^= 0x10;
        mr_code rc = mr__image_header(&d, MR__IMAGE_PNG, part, s.size, 0, &info, &st);
        if (rc == MR_OK)
            rc = mr__image_decode(&d, &info, part, s.size, pixels, &st);
        mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    }
    free(part);
    free((void *)(uintptr_t)s.data);
}

MR_TEST(a_huge_image_is_refused_before_there_is_memory_for_it)
{
    /* A header of 40,000 x 40,000 pixels. */
    static const char header[] =
        "\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\x9C\x40\0\0\x9C\x40\x08\x02\0\0\0";
    unsigned char all[64];
    size_t n = sizeof header - 1;
    memcpy(all, header, n);
    uint32_t crc = (uint32_t)crc32(0, all + 12, 17);
    for (int i = 0; i < 4; i++)
        all[n++] = (unsigned char)(crc >> (24 - 8 * i));
    memcpy(all + n, "\0\0\0\0IDAT\x35\xAF\x06\x1E", 12);
    mr__image_decoder d = {0};
    mr__image_info info;
    mr_status st;
    mr_code_is(mr__image_header(&d, MR__IMAGE_ANY, all, n + 12, 0, &info, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "an image of 40000 x 40000 pixels is larger than 512 MiB");
}
