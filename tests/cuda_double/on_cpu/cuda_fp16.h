/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of CUDA's: kernels take float16 apart by themselves. */
