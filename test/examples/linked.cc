// SPDX-License-Identifier: Apache-2.0
//
// linked.cc: a C++ program that links libarfusion, which finds the plugin (ARFUSION_PLUGIN) and completes what it turns
// down.
// Two ranks are threads; on the host device the calls are synchronous.
//
//   c++ linked.cc $(pkg-config --cflags --libs arfusion) -pthread && ARFUSION_DEVICE=host ./a.out
#include <cstdio>
#include <thread>
#include <vector>

#include <arfusion.h>

int main() {
  constexpr int ranks = 2, tokens = 3, hidden = 4096;
  arfusionProperties_t device = {};
  device.size = sizeof device;
  arfusionComm_t comms[ranks];
  if (arfusionGetProperties(0, &device) != arfusionSuccess)
    return std::fprintf(stderr, "%s\n", arfusionGetLastError()), 1;
  if (!device.isHost) return std::fprintf(stderr, "this example uses host memory: set ARFUSION_DEVICE=host\n"), 77;
  if (arfusionCommInitAll(comms, ranks, nullptr, nullptr) != arfusionSuccess) {
    return std::fprintf(stderr, "%s\n", arfusionGetLastError()), 1;
  }

  const std::vector<float> gamma(hidden, 1.0f);
  std::vector<std::vector<float>> input(ranks), residual(ranks), norm(ranks);
  std::vector<double> completed(ranks, 0);
  std::vector<std::thread> threads;
  bool failed[ranks] = {};
  for (int r = 0; r < ranks; ++r) {
    input[r].assign(tokens * hidden, float(r + 1));
    residual[r].assign(tokens * hidden, 1.0f);
    norm[r].resize(tokens * hidden);
    threads.emplace_back([&, r] {
      arfusionRequest_t request = {};
      request.size = sizeof request;
      request.pattern = arfusionPatternResidualRmsNorm;
      request.dataType = request.gammaDataType = arfusionFloat32;
      request.tokens = tokens;
      request.hidden = hidden;
      request.eps = 1e-5f;
      request.input = input[r].data();
      request.residualIn = request.residualOut = residual[r].data();
      request.gamma = gamma.data();
      request.normOut = norm[r].data();
      failed[r] = arfusionAllReduce(comms[r], &request, nullptr, nullptr) != arfusionSuccess;

      // fp64 is not for the plugin's kernels: the library does it, and says why.
      arfusionRequest_t sum = {};
      arfusionRoute_t route = {};
      double one = 1;
      sum.size = sizeof sum;
      route.size = sizeof route;
      sum.pattern = arfusionPatternAllReduce;
      sum.dataType = arfusionFloat64;
      sum.tokens = sum.hidden = 1;
      sum.input = &one;
      sum.allreduceOut = &completed[r];
      failed[r] = failed[r] || arfusionAllReduce(comms[r], &sum, nullptr, &route) != arfusionSuccess;
      if (r == 0) std::printf("completed by the library: %s\n", arfusionReasonString(route.reason));
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto comm : comms) arfusionCommDestroy(comm);
  for (int r = 0; r < ranks; ++r) {
    if (failed[r] || completed[r] != ranks) return 1;
    for (float v : residual[r]) if (v != 4) return 1;
  }
  std::printf("%d ranks: sum + residual = %g, norm = %g\n", ranks, residual[0][0], norm[0][0]);
  return 0;
}
