/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces CUDA's header: kernels take bfloat16 apart themselves. */
