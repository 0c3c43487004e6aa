/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_EXCHANGE_SAVED_MODEL_IMPL_H
#define MR_TRAINER_EXCHANGE_SAVED_MODEL_IMPL_H
/* Shared by saved models and checkpoints. */
#include "trainer/exchange/saved_model.h"
#include "trainer/files/safetensors_impl.h"
#include "trainer/files/saved_files.h"

/* Whether a file of this name may be part of a saved model or checkpoint. */
bool mr__is_saved_name(const char *name);
/* Writes the files of a saved model to an existing directory. */
mr_code mr__save_into(const mr_model *m, const char *directory, const mr_save_opts *opts,
                      mr_status *st) MR_NODISCARD;
bool mr__saved_is_mixed(const mr_saved *s); /* it was trained in mixed precision */
/* Checks that t has this name, float32 values and this shape.
 * errors   MR_INVALID_ARGUMENT: states both */
mr_code mr__check_tensor(const mr_named_tensor *t, const char *name, int rank, const int64_t *shape,
                         mr_status *st) MR_NODISCARD;
/* The values of a float32 tensor at an aligned address: its own, or a copy, returned in *owned. */
mr_code mr__tensor_floats(const mr_named_tensor *t, const float **values, float **owned,
                          mr_status *st) MR_NODISCARD;
/* Checks that f has the values of exactly the model's tensors. Changes nothing. */
mr_code mr__check_weights(const mr_safetensors *f, const mr_model *m, mr_status *st) MR_NODISCARD;
/* The directory of the latest checkpoint in path, owned; *out NULL: path is not a directory of
 * checkpoints. */
mr_code mr__latest_checkpoint(const char *path, char **out, mr_status *st) MR_NODISCARD;
const mr_safetensors *mr__saved_weights(const mr_saved *s);
#endif
