/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of a device's operations, one "name value unit" a line.
 *   gpu_math [DEVICE]      default cuda:0
 * bench/gpu.sh prints PyTorch's rates for the same shapes next to them, as ceilings. */
#include <millrace/trainer/device/math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ceiling.h"

enum { REPEATS = 20, BUFFERS = 4 };

static mr_status st;
static mr_device *device;
static mr_stream *stream;
static const mr_math_table *math;
static float *buffers[BUFFERS]; /* of `values` each */
static const size_t values = (size_t)160 << 20;

/* Prints `work` per second, in 1e9 of the unit; the first call makes plans. */
#define RATE(name, op, p, work, unit) RATE_OF(REPEATS, name, op, p, work, unit)
#define RATE_OF(times, name, op, p, work, unit)                                                    \
    do {                                                                                           \
        bench_must(math->op(stream, p, &st), &st);                                                 \
        bench_must(mr_stream_synchronize(stream, &st), &st);                                       \
        double began_ = bench_now();                                                               \
        for (int i_ = 0; i_ < (times); i_++)                                                       \
            bench_must(math->op(stream, p, &st), &st);                                             \
        bench_must(mr_stream_synchronize(stream, &st), &st);                                       \
        printf("%s %.2f %s\n", name, (double)(work) * (times) / (bench_now() - began_) / 1e9,      \
               unit);                                                                              \
    } while (0)

static void dense(void)
{
    enum { ROWS = 8192, IN = 4096, OUT = 4096 };
    double work = 2e-3 * ROWS * IN * OUT;
    float *x = buffers[0], *w = buffers[1], *y = buffers[2], *bias = buffers[3];
    RATE("dense", dense,
         (&(mr_math_dense){.rows = ROWS,
                           .in = IN,
                           .out = OUT,
                           .f = MR_ACT_RELU,
                           .x = x,
                           .w = w,
                           .bias = bias,
                           .y = y}),
         work, "TFLOP/s");
    RATE("dense_backward_data", dense_backward_data,
         (&(mr_math_dense_backward_data){
             .rows = ROWS, .in = IN, .out = OUT, .dy = y, .w = w, .dx = x}),
         work, "TFLOP/s");
    RATE("dense_backward_weights", dense_backward_weights,
         (&(mr_math_dense_backward_weights){
             .rows = ROWS, .in = IN, .out = OUT, .x = x, .dy = y, .dw = w, .dbias = bias}),
         work, "TFLOP/s");
}

static void convolution(void)
{
    const mr_math_conv2d_shape s = {.n = 64,
                                    .height = 56,
                                    .width = 56,
                                    .channels = 64,
                                    .filters = 64,
                                    .groups = 1,
                                    .kernel_h = 3,
                                    .kernel_w = 3,
                                    .stride_h = 1,
                                    .stride_w = 1,
                                    .dilation_h = 1,
                                    .dilation_w = 1,
                                    .pad_top = 1,
                                    .pad_left = 1,
                                    .out_h = 56,
                                    .out_w = 56};
    double work = 2e-3 * 64 * 56 * 56 * 64 * 64 * 9;
    float *x = buffers[0], *k = buffers[1], *y = buffers[2], *bias = buffers[3];
    RATE("conv2d", conv2d,
         (&(mr_math_conv2d){.s = s, .f = MR_ACT_RELU, .x = x, .kernel = k, .bias = bias, .y = y}),
         work, "TFLOP/s");
    RATE("conv2d_backward_data", conv2d_backward_data,
         (&(mr_math_conv2d_backward_data){.s = s, .dy = y, .kernel = k, .dx = x}), work, "TFLOP/s");
    RATE("conv2d_backward_weights", conv2d_backward_weights,
         (&(mr_math_conv2d_backward_weights){.s = s, .x = x, .dy = y, .dkernel = k, .dbias = bias}),
         work, "TFLOP/s");
}

/* The first layers of a small CNN, which are bound by memory. */
static void first_layers(void)
{
    const mr_math_conv2d_shape s = {.n = 4096,
                                    .height = 28,
                                    .width = 28,
                                    .channels = 1,
                                    .filters = 32,
                                    .groups = 1,
                                    .kernel_h = 3,
                                    .kernel_w = 3,
                                    .stride_h = 1,
                                    .stride_w = 1,
                                    .dilation_h = 1,
                                    .dilation_w = 1,
                                    .out_h = 26,
                                    .out_w = 26};
    const mr_math_pool2d_shape pool = {.n = 4096,
                                       .height = 26,
                                       .width = 26,
                                       .channels = 32,
                                       .pool_h = 2,
                                       .pool_w = 2,
                                       .stride_h = 2,
                                       .stride_w = 2,
                                       .out_h = 13,
                                       .out_w = 13};
    double large = 4.0 * 4096 * 26 * 26 * 32, small = 4.0 * 4096 * 13 * 13 * 32,
           image = 4.0 * 4096 * 28 * 28;
    float *x = buffers[0], *k = buffers[1], *y = buffers[2], *other = buffers[3];
    RATE("conv2d_1_channel", conv2d,
         (&(mr_math_conv2d){.s = s, .f = MR_ACT_RELU, .x = x, .kernel = k, .bias = k, .y = y}),
         large + image, "GB/s");
    RATE("conv2d_1_backward_weights", conv2d_backward_weights,
         (&(mr_math_conv2d_backward_weights){
             .s = s, .x = x, .dy = y, .dkernel = k, .dbias = k + 512}),
         large + image, "GB/s");
    RATE("max_pool", pool2d, (&(mr_math_pool2d){.s = pool, .x = y, .y = x}), large + small, "GB/s");
    RATE("max_pool_backward", pool2d_backward,
         (&(mr_math_pool2d_backward){.s = pool, .x = y, .y = x, .dy = x, .dx = other}),
         2 * large + 2 * small, "GB/s");
    RATE("relu_backward", activate_backward,
         (&(mr_math_activate_backward){.f = MR_ACT_RELU,
                                       .rows = (size_t)4096 * 26 * 26,
                                       .width = 32,
                                       .y = y,
                                       .dy = other,
                                       .dx = other}),
         3 * large, "GB/s");
}

/* Bytes that must be read and written. */
static void memory_bound(void)
{
    enum { ROWS = 4096, WIDTH = 32000, SMALL = 1024 };
    size_t n = (size_t)ROWS * WIDTH;
    double gb = 4.0 * (double)n;
    RATE("combine", combine,
         (&(mr_math_combine){.n = n, .a = 1, .b = 0.5f, .x = buffers[0], .y = buffers[1]}), 3 * gb,
         "GB/s");
    RATE("adam", adam,
         (&(mr_math_adam){.n = n,
                          .rate = 1e-3f,
                          .keep_1 = 0.1f,
                          .keep_2 = 0.001f,
                          .epsilon = 1e-7f,
                          .g = buffers[0],
                          .w = buffers[1],
                          .m = buffers[2],
                          .v = buffers[3]}),
         7 * gb, "GB/s");
    RATE("softmax", activate,
         (&(mr_math_activate){
             .f = MR_ACT_SOFTMAX, .rows = ROWS, .width = WIDTH, .x = buffers[0], .y = buffers[1]}),
         2 * gb, "GB/s");
    RATE("sum", sum, (&(mr_math_sum){.n = n, .x = buffers[0], .out = (double *)(void *)buffers[1]}),
         gb, "GB/s");
    RATE("moments", moments,
         (&(mr_math_moments){.rows = n / 256,
                             .width = 256,
                             .x = buffers[0],
                             .mean = buffers[1],
                             .variance = buffers[2]}),
         gb, "GB/s");
    RATE("dropout", dropout,
         (&(mr_math_dropout){.rows = ROWS,
                             .width = WIDTH,
                             .key = 3,
                             .rate = 0.2f,
                             .x = buffers[0],
                             .y = buffers[1]}),
         2 * gb, "GB/s");
    /* Too small to take any time: the cost of submitting one operation. */
    RATE_OF(10000, "small_operations", combine,
            (&(mr_math_combine){.n = SMALL, .a = 1, .b = 0.5f, .x = buffers[0], .y = buffers[1]}),
            1e3, "million/s");
}

int main(int argc, char **argv)
{
    void *p;
    bench_must(mr_device_open(&device, argc > 1 ? argv[1] : "cuda:0", &st), &st);
    bench_must(mr_stream_new(&stream, device, MR_STREAM_COMPUTE, &st), &st);
    math = mr_device_math(device);
    for (int i = 0; i < BUFFERS; i++) {
        bench_must(mr_device_alloc(device, MR_MEMORY_DEVICE, values * sizeof(float), &p, &st), &st);
        buffers[i] = p;
        bench_must(math->fill(stream, &(mr_math_fill){.n = values, .value = 0.01f, .dst = p}, &st),
                   &st);
    }
    dense();
    convolution();
    first_layers();
    memory_bound();
    for (int i = 0; i < BUFFERS; i++)
        mr_device_free(device, MR_MEMORY_DEVICE, buffers[i]);
    mr_stream_free(stream);
    mr_device_close(device);
    return 0;
}
