/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces CUDA's header: kernels take float16 apart themselves. */
