/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.c: the reference; see reference.h.
 */
#include "plugin/tools/bench/reference.h"

#include <math.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/number.h"

#define PACK 8   /* elements that are summed one after the other */
#define LANES 32 /* packs of a segment, and segments of a group */
#define SEGMENT (PACK * LANES)

static const void* at(const void* array, arfusionDataType_t dtype, int64_t index) {
  return (const unsigned char*)array + (size_t)index * bench_dtype_bytes(dtype);
}

static void* at_out(void* array, arfusionDataType_t dtype, int64_t index) {
  return (unsigned char*)array + (size_t)index * bench_dtype_bytes(dtype);
}

void reference_sum(arfusionDataType_t dtype, int nranks, const void* const* inputs, int64_t count, void* sum) {
  float total[SEGMENT], x[SEGMENT];
  for (int64_t start = 0; start < count; start += SEGMENT) {
    int64_t length = count - start < SEGMENT ? count - start : SEGMENT;
    for (int r = 0; r < nranks; r++) {
      number_load(dtype, at(inputs[r], dtype, start), length, x);
      for (int64_t i = 0; i < length; i++) {
        float value = x[i] == 0.0f ? 0.0f : x[i];
        total[i] = r == 0 ? value : total[i] + value;
      }
    }
    number_store(dtype, total, length, at_out(sum, dtype, start));
  }
}

void reference_residual(arfusionDataType_t dtype, const void* sum, const void* residual, int64_t count, void* out) {
  float s[SEGMENT], y[SEGMENT];
  for (int64_t start = 0; start < count; start += SEGMENT) {
    int64_t length = count - start < SEGMENT ? count - start : SEGMENT;
    number_load(dtype, at(sum, dtype, start), length, s);
    number_load(dtype, at(residual, dtype, start), length, y);
    for (int64_t i = 0; i < length; i++) y[i] = s[i] + y[i];
    number_store(dtype, y, length, at_out(out, dtype, start));
  }
}

/* Lane l adds lane l + 16, then l + 8, l + 4, l + 2, l + 1; what 32 lanes of a warp have after exchanging. */
static float lanes_sum(float lanes[LANES]) {
  for (int distance = LANES / 2; distance > 0; distance /= 2) {
    for (int l = 0; l < distance; l++) lanes[l] = lanes[l] + lanes[l + distance];
  }
  return lanes[0];
}

static float segment_sum_of_squares(const float y[SEGMENT]) {
  float lanes[LANES];
  for (int l = 0; l < LANES; l++) {
    float p = 0.0f;
    for (int i = 0; i < PACK; i++) p = p + y[l * PACK + i] * y[l * PACK + i];
    lanes[l] = p;
  }
  return lanes_sum(lanes);
}

static float row_sum_of_squares(arfusionDataType_t dtype, const void* y, int64_t hidden) {
  float total = 0.0f;
  for (int64_t group = 0; group < hidden; group += (int64_t)SEGMENT * LANES) {
    float segments[LANES] = {0};
    for (int s = 0; s < LANES && group + s * SEGMENT < hidden; s++) {
      int64_t start = group + s * SEGMENT;
      float x[SEGMENT] = {0};
      number_load(dtype, at(y, dtype, start), hidden - start < SEGMENT ? hidden - start : SEGMENT, x);
      segments[s] = segment_sum_of_squares(x);
    }
    total = total + lanes_sum(segments);
  }
  return total;
}

void reference_norm(const struct reference_norm* norm, const void* y, void* out) {
  for (int64_t t = 0; t < norm->tokens; t++) {
    const void* row = at(y, norm->dtype, t * norm->hidden);
    float mean = row_sum_of_squares(norm->dtype, row, norm->hidden) * (1.0f / (float)norm->hidden);
    float r = (float)(1.0 / sqrt((double)(mean + norm->eps)));
    for (int64_t start = 0; start < norm->hidden; start += SEGMENT) {
      int64_t length = norm->hidden - start < SEGMENT ? norm->hidden - start : SEGMENT;
      float x[SEGMENT], gamma[SEGMENT];
      number_load(norm->dtype, at(row, norm->dtype, start), length, x);
      number_load(norm->gamma_dtype, at(norm->gamma, norm->gamma_dtype, start), length, gamma);
      for (int64_t i = 0; i < length; i++) x[i] = (x[i] * r) * (norm->weight_bias + gamma[i]);
      number_store(norm->dtype, x, length, at_out(out, norm->dtype, t * norm->hidden + start));
    }
  }
}
