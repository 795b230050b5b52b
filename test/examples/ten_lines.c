/* SPDX-License-Identifier: Apache-2.0
 *
 * ten_lines.c: one process a rank, with torchrun's variables; on the host device.
 *
 *   cc ten_lines.c $(pkg-config --cflags --libs arfusion)
 *   ARFUSION_DEVICE=host torchrun --no-python --nproc-per-node 2 ./a.out
 *
 * or, without torchrun,
 *
 *   for rank in 0 1; do
 *     ARFUSION_DEVICE=host RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ./a.out &
 *   done
 */
#include <arfusion.h>
#include <stdio.h>

int main(void) {
  static float x[4096] = {1}, residual[4096] = {2}, gamma[4096] = {3};
  arfusionComm_t comm;
  if (arfusionCommInitEnvironment(&comm, NULL)) return fprintf(stderr, "%s\n", arfusionGetLastError()), 1;
  arfusionRequest_t request = {.size = sizeof request, .pattern = arfusionPatternResidualRmsNorm, .tokens = 1,
                               .hidden = 4096, .dataType = arfusionFloat32, .gammaDataType = arfusionFloat32,
                               .eps = 1e-5f, .gamma = gamma, .input = x, .normOut = x, .residualIn = residual,
                               .residualOut = residual};
  if (arfusionAllReduce(comm, &request, NULL, NULL)) return fprintf(stderr, "%s\n", arfusionGetLastError()), 1;
  printf("sum + residual = %g, norm = %g\n", residual[0], x[0]);
  return arfusionCommDestroy(comm);
}
