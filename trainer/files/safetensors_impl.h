/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_SAFETENSORS_IMPL_H
#define MR_TRAINER_FILES_SAFETENSORS_IMPL_H
/* Tensors in a directory that is being written, and in an existing one. */
#include "trainer/files/safetensors.h"

/* Writes directory/name, not atomically: the directory is renamed when it is complete. */
mr_code mr__save_tensors(const char *directory, const char *name, const mr_named_tensor *t,
                         size_t n, mr_status *st) MR_NODISCARD;
/* *out owned: mr_safetensors_close. */
mr_code mr__load_tensors(const char *directory, const char *name, mr_safetensors **out,
                         mr_status *st) MR_NODISCARD;
#endif
