/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c: a sentence for each reason why a request is turned down, and names of the ABI's enums for messages.
 */
#include "plugin/core/names.h"

#include <stdio.h>

const char* name_of_reason(arfusionReason_t reason) {
  switch (reason) {
    case arfusionReasonNone: return "not turned down";
    case arfusionReasonDataType: return "data type is not float16, bfloat16 or float32";
    case arfusionReasonOperation: return "operation is not a sum";
    case arfusionReasonRankCount: return "number of ranks is not 2 to 16";
    case arfusionReasonHiddenAlignment: return "hidden is not a multiple of 16 bytes (nvfp4: of 16 elements)";
    case arfusionReasonHiddenTooLarge: return "hidden is too large";
    case arfusionReasonWorkspace: return "request is larger than the workspace was made for";
    case arfusionReasonSeveralHosts: return "ranks are on several hosts";
    case arfusionReasonNoPeerAccess: return "ranks cannot reach each other's memory";
    case arfusionReasonPeerWriteTest: return "peer access is reported, but its write test failed";
    case arfusionReasonQuantDataType: return "quantization is not supported for the data type";
    case arfusionReasonGroupSize: return "group size is not a multiple of 8 that divides hidden";
    case arfusionReasonQuantUnsupported: return "quantization is not supported by this plugin";
    case arfusionReasonAlgorithm: return "the algorithm that was asked for is not available here";
    case arfusionReasonDisabled: return "turned off by configuration (ARFUSION_ALGO=none)";
    case arfusionReasonSlower: return "slower than the alternative (ARFUSION_PREFER=speed)";
    case arfusionReasonNotReady: return "not set up yet";
    case arfusionReasonDriver: return "the driver or the GPU is too old";
    case arfusionReasonGammaDataType: return "gamma's data type is neither the request's nor float32";
    case arfusionReasonSharedGpu: return "several ranks are on one GPU (ARFUSION_SHARED_GPU=1 allows that, for tests)";
  }
  return "unknown reason";
}

const char* text_of_reason(char* text, size_t bytes, arfusionReason_t reason, int64_t value, int64_t limit) {
  if (value == 0 && limit == 0) {
    snprintf(text, bytes, "%s", name_of_reason(reason));
  } else {
    snprintf(text, bytes, "%s (%lld, limit %lld)", name_of_reason(reason), (long long)value, (long long)limit);
  }
  return text;
}

const char* key_of_reason(arfusionReason_t reason) {
  switch (reason) {
    case arfusionReasonNone: return "none";
    case arfusionReasonDataType: return "data_type";
    case arfusionReasonOperation: return "operation";
    case arfusionReasonRankCount: return "rank_count";
    case arfusionReasonHiddenAlignment: return "hidden_alignment";
    case arfusionReasonHiddenTooLarge: return "hidden_too_large";
    case arfusionReasonWorkspace: return "workspace";
    case arfusionReasonSeveralHosts: return "several_hosts";
    case arfusionReasonNoPeerAccess: return "no_peer_access";
    case arfusionReasonPeerWriteTest: return "peer_write_test";
    case arfusionReasonQuantDataType: return "quant_data_type";
    case arfusionReasonGroupSize: return "group_size";
    case arfusionReasonQuantUnsupported: return "quant_unsupported";
    case arfusionReasonAlgorithm: return "algorithm";
    case arfusionReasonDisabled: return "disabled";
    case arfusionReasonSlower: return "slower";
    case arfusionReasonNotReady: return "not_ready";
    case arfusionReasonDriver: return "driver";
    case arfusionReasonGammaDataType: return "gamma_data_type";
    case arfusionReasonSharedGpu: return "shared_gpu";
  }
  return "unknown";
}

const char* name_of_algorithm(arfusionAlgorithm_t algorithm) {
  switch (algorithm) {
    case arfusionAlgoAuto: return "auto";
    case arfusionAlgoNone: return "none";
    case arfusionAlgoEmpty: return "empty";
    case arfusionAlgoOneshotLamport: return "oneshot_lamport";
    case arfusionAlgoOneshotSync: return "oneshot_sync";
    case arfusionAlgoTwoshot: return "twoshot";
  }
  return "unknown algorithm";
}

const char* name_of_pattern(arfusionPattern_t pattern) {
  switch (pattern) {
    case arfusionPatternAllReduce: return "allreduce";
    case arfusionPatternResidualRmsNorm: return "residual_rmsnorm";
  }
  return "unknown pattern";
}

const char* name_of_data_type(arfusionDataType_t dtype) {
  switch (dtype) {
    case arfusionInt8: return "int8";
    case arfusionUint8: return "uint8";
    case arfusionInt32: return "int32";
    case arfusionUint32: return "uint32";
    case arfusionInt64: return "int64";
    case arfusionUint64: return "uint64";
    case arfusionFloat16: return "float16";
    case arfusionFloat32: return "float32";
    case arfusionFloat64: return "float64";
    case arfusionBfloat16: return "bfloat16";
    case arfusionFloat8e4m3: return "float8e4m3";
    case arfusionFloat8e5m2: return "float8e5m2";
  }
  return "unknown data type";
}

const char* name_of_quantization(arfusionQuant_t quantization) {
  switch (quantization) {
    case arfusionQuantNone: return "none";
    case arfusionQuantFp8: return "fp8";
    case arfusionQuantFp8Token: return "fp8_token";
    case arfusionQuantFp8Group: return "fp8_group";
    case arfusionQuantNvfp4: return "nvfp4";
  }
  return "unknown quantization";
}
