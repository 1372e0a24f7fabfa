/* SPDX-License-Identifier: Apache-2.0 */
/* The model tag_batch with three members: two of them mark the cell while the third one decides. */
#define MEMBERS 3
#define OPS 1
#define BATCHES 1
#include "tag_batch.pml"
