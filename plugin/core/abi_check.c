/* SPDX-License-Identifier: Apache-2.0
 *
 * abi_check.c: what the ABI header promises, proven by the compiler: sizes never shrink, values equal NCCL's.
 */
#include "arfusion_plugin.h"

_Static_assert(sizeof(arfusionProperties_t) >= ARFUSION_PROPERTIES_V1_SIZE, "properties");
_Static_assert(sizeof(arfusionConfig_t) >= ARFUSION_CONFIG_V1_SIZE, "config");
_Static_assert(sizeof(arfusionBootstrap_t) >= ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap");
_Static_assert(sizeof(arfusionRequest_t) >= ARFUSION_REQUEST_V1_SIZE, "request");
_Static_assert(sizeof(arfusionRoute_t) >= ARFUSION_ROUTE_V1_SIZE, "route");
_Static_assert(sizeof(arfusionCapacity_t) >= ARFUSION_CAPACITY_V1_SIZE, "capacity");
_Static_assert(sizeof(arfusionWorkspace_t) >= ARFUSION_WORKSPACE_V1_SIZE, "workspace");
_Static_assert(sizeof(arfusionStats_t) >= ARFUSION_STATS_V1_SIZE, "stats");
_Static_assert(sizeof(arfusionPlugin_v1_t) >= ARFUSION_PLUGIN_V1_SIZE, "the table");
_Static_assert(sizeof(arfusionUniqueId_t) == 128, "unique id");
_Static_assert(ARFUSION_NUM_REASONS <= 64 && ARFUSION_NUM_ALGORITHMS <= 16, "the counters' places");

#ifdef ARFUSION_HAVE_NCCL_H
#include <nccl.h>

#define SAME(ours, nccls) _Static_assert((int)(ours) == (int)(nccls), #ours " is not " #nccls)
SAME(arfusionSuccess, ncclSuccess);
SAME(arfusionUnhandledCudaError, ncclUnhandledCudaError);
SAME(arfusionSystemError, ncclSystemError);
SAME(arfusionInternalError, ncclInternalError);
SAME(arfusionInvalidArgument, ncclInvalidArgument);
SAME(arfusionInvalidUsage, ncclInvalidUsage);
SAME(arfusionRemoteError, ncclRemoteError);
SAME(arfusionInProgress, ncclInProgress);
SAME(arfusionInt8, ncclInt8);
SAME(arfusionUint8, ncclUint8);
SAME(arfusionInt32, ncclInt32);
SAME(arfusionUint32, ncclUint32);
SAME(arfusionInt64, ncclInt64);
SAME(arfusionUint64, ncclUint64);
SAME(arfusionFloat16, ncclFloat16);
SAME(arfusionFloat32, ncclFloat32);
SAME(arfusionFloat64, ncclFloat64);
SAME(arfusionBfloat16, ncclBfloat16);
SAME(arfusionSum, ncclSum);
SAME(arfusionProd, ncclProd);
SAME(arfusionMax, ncclMax);
SAME(arfusionMin, ncclMin);
SAME(arfusionAvg, ncclAvg);
#endif
