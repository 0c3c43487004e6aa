/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_DEVICE_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_DEVICE_H
/* Devices and streams, shared by the files of the module. */
#include <pthread.h>
#include "trainer/device/cuda/cuda_api.h"
#include "trainer/device/device.h"

struct mr__cuda_plan; /* cuda_product.c */

typedef struct mr__cuda_device {
    int index;
    unsigned max_blocks; /* per kernel: enough to fill the device */
    cudaStream_t home;   /* for memory that belongs to no stream */
    cublasLtHandle_t blas;
    pthread_mutex_t plans_lock; /* guards plans */
    struct mr__cuda_plan *plans;
} mr__cuda_device;

/* Memory of a stream that its operations use in turn, as large as the largest request. */
typedef struct mr__cuda_room {
    void *p;
    size_t bytes;
} mr__cuda_room;

typedef struct mr__cuda_stream {
    mr__cuda_device *d;
    cudaStream_t stream;
    mr__cuda_room scratch, workspace, filters; /* of kernels; of libraries; of convolutions */
    mr__cuda_room packed;                      /* bfloat16 that is multiplied */
    void *bad;                                 /* mr_k_bad, for losses */
    cudnnHandle_t dnn;                         /* created by the first convolution */
    bool no_dnn;                               /* creating it failed */
    struct mr__cuda_convolution *convolutions; /* cuda_convolution.c */
    struct mr__cuda_graphs *graphs;            /* cuda_graph.c; NULL: none yet */
} mr__cuda_stream;

/* Fills device memory with a byte. bytes > 0. */
mr_code mr__cuda_set(mr__cuda_stream *s, void *p, int byte, size_t bytes,
                     mr_status *st) MR_NODISCARD;

/* Grows r to at least `bytes`, in stream order. */
mr_code mr__cuda_reserve(mr__cuda_stream *s, mr__cuda_room *r, size_t bytes,
                         mr_status *st) MR_NODISCARD;
#endif
