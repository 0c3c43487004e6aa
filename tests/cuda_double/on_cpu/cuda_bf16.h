/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of CUDA's: kernels take bfloat16 apart by themselves. */
