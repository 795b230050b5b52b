/* SPDX-License-Identifier: Apache-2.0
 *
 * check_nvlink.c: checks of NVLink and its fabric; see check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/topo/check.h"
#include "plugin/tools/topo/odd.h"

/* The first GPU that is odd in one of these ways; -1: none. */
static int first_odd(const struct topo* topo, unsigned ways, int* usual) {
  unsigned char* odd = odd_find(topo, usual);
  int first = -1;
  for (int i = 0; odd != NULL && i < topo->ngpus && first < 0; i++) {
    if (odd[i] & ways) first = i;
  }
  free(odd);
  return first;
}

void check_nvlink_links(const struct check_input* in, struct check* check) {
  const struct topo* topo = in->topo;
  int known = 0, usual = 0;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) known += topo->gpus[i].nvlink_active.state == TOPO_OK;
  if (known < topo->ngpus) {
    check_say(check, CHECK_NOT_OBSERVABLE,
              "the NVLinks of %d of %d GPUs are known; not observable is not the same as none", known, topo->ngpus);
    return;
  }
  int odd = first_odd(topo, ODD_LINK_COUNT, &usual);
  const struct topo_gpu* gpu = &topo->gpus[odd >= 0 ? odd : 0];
  const char* source = topo_source(topo, gpu->nvlink_active.source);
  if (odd >= 0) {
    check_say(check, CHECK_FAIL,
              "GPU%d (%s) has %d active NVLinks and %d that are not active, most GPUs have %d active: %s", odd,
              gpu->bus_id, gpu->nvlink_active.value, gpu_inactive_links(gpu), usual, source);
    check_mean(check,
               "A GPU with fewer links slows all of them down, and the NVSwitches are only used if all have as many.");
    check_mend(check, "nvidia-smi nvlink --status -i %s; then, with nothing running: nvidia-smi --gpu-reset -i %s",
               gpu->bus_id, gpu->bus_id);
  } else if (usual == 0) {
    check_say(check, CHECK_WARN, "no GPU has an active NVLink: %s", source);
    check_mean(check, "Everything between the GPUs goes over PCIe.");
  } else {
    check_say(check, CHECK_OK, "each GPU has %d active NVLinks, and none that is not active: %s", usual, source);
  }
}

void check_nvlink_targets(const struct check_input* in, struct check* check) {
  const struct topo* topo = in->topo;
  int known = 0, missing;
  const struct topo_finding* finding = tool_finding(in->topo, "nvlink.target", &missing);
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) known += topo->gpus[i].nlinks > 0;
  int odd = first_odd(topo, ODD_LINK_TARGETS | ODD_LINK_LOST, NULL);
  if (finding != NULL) {
    check_say(check, CHECK_FAIL, "%s", finding->text);
    if (missing > 1) check_say(check, CHECK_FAIL, " (and %d more like it)", missing - 1);
  } else if (known == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nothing says where NVLinks end");
    return;
  } else if (odd < 0) {
    check_say(check, CHECK_OK, "the NVLinks of GPUs that are alike end at the same places: %s",
              topo_source(topo, topo->gpus[0].nlinks > 0 ? topo->gpus[0].links[0].source : 0));
    return;
  } else {
    check_say(check, CHECK_FAIL, "GPU%d (%s) has NVLinks to switches as no other GPU has: ", odd,
              topo->gpus[odd].bus_id);
    odd_targets_text(topo, odd, check->evidence, sizeof(check->evidence));
  }
  check_mean(check,
             "A wrong target is taken for a missing link. It is mostly a mistake of the hypervisor or the firmware.");
  check_mend(check,
             "arfusion-topo export --format nccl-xml -o topo.xml; correct the target there; NCCL_TOPO_FILE=topo.xml");
}

void check_nvlink_symmetry(const struct check_input* in, struct check* check) {
  const struct topo* topo = in->topo;
  int known = 0;
  const struct topo_finding* finding = tool_finding(in->topo, "nvlink.lopsided", NULL);
  if (check_needs_gpus(in, 2, check)) return;
  if (finding != NULL) {
    check_say(check, CHECK_FAIL, "%s", finding->text);
    check_mean(check, "A link has two ends: one of the GPUs reports wrongly, or half of the link is down.");
    check_mend(check, "nvidia-smi nvlink --status; nvidia-smi nvlink --remotelinkinfo");
    return;
  }
  for (int from = 0; from < topo->ngpus; from++) {
    for (int to = 0; to < topo->ngpus; to++)
      known += from != to && topo_pair(topo, from, to)->nvlink_count.state == TOPO_OK;
  }
  check_say(check, known > 0 ? CHECK_OK : CHECK_NOT_OBSERVABLE,
            known > 0 ? "every NVLink is reported by both of its ends" : "nothing says what NVLinks there are");
}

void check_nvlink_all_to_all(const struct check_input* in, struct check* check) {
  const struct topo_verdict* verdict = &in->decision->verdict;
  const char* source = topo_source(in->topo, verdict->nvlink.source);
  if (check_needs_gpus(in, 2, check)) return;
  if (verdict->nvlink.state == TOPO_OK) {
    check_say(check, CHECK_OK, "every pair has NVLink");
    if (verdict->nvlink_count > 0) check_say(check, CHECK_OK, ", %d links", verdict->nvlink_count);
    if (verdict->assumed) check_say(check, CHECK_OK, "; %s", verdict->nvlink.why);
    return;
  }
  check_say(check, verdict->nvlink.state == TOPO_FAIL ? CHECK_WARN : CHECK_NOT_OBSERVABLE, "%s%s%s",
            verdict->nvlink.why, source[0] != '\0' ? ": " : "", source);
  if (verdict->nvlink.state == TOPO_FAIL) {
    check_mean(check,
               "What NVLink does not carry goes over PCIe, if peer access is allowed there: a tenth of the speed.");
    check_mend(check, "choose GPUs that NVLink joins, by CUDA_VISIBLE_DEVICES");
  }
}

void check_nvlink_multicast(const struct check_input* in, struct check* check) {
  (void)in;
  check_say(check, CHECK_NOT_OBSERVABLE,
            "whether NVLink multicast (NVLS) works is only known once it is bound; that is not tried here");
  check_mean(
      check,
      "arfusion does not use it. NCCL does where it is advertised, and fails with error 401 where it cannot be bound.");
  check_mend(check, "NCCL_NVLS_ENABLE=0, if NCCL fails with 401");
}

void check_fabric_state(const struct check_input* in, struct check* check) {
  static const char* const states[] = {"not supported", "not started", "in progress", "completed"};
  const struct topo* topo = in->topo;
  int known = 0, supported = 0;
  if (check_needs_live(in, check) || check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    const char* source = topo_source(topo, gpu->fabric.source);
    if (gpu->fabric.state == TOPO_NOT_OBSERVABLE) continue;
    known++;
    supported += gpu->fabric.value != 0;
    if (gpu->fabric.state == TOPO_FAIL) {
      const char* state = gpu->fabric.value >= 0 && gpu->fabric.value < 4 ? states[gpu->fabric.value] : "unknown";
      check_say(check, CHECK_FAIL, "GPU%d (%s): %s: state %d (%s)", i, gpu->bus_id, source, gpu->fabric.value, state);
      if (gpu->fabric_status.state != TOPO_NOT_OBSERVABLE) {
        check_say(check, CHECK_FAIL, ", status %d", gpu->fabric_status.value);
      }
      check_mean(
          check,
          "The NVSwitches do not carry this GPU's traffic; CUDA fails with error 802 (system not yet initialized).");
      check_mend(check,
                 "systemctl status nvidia-fabricmanager; systemctl restart nvidia-fabricmanager (its version must be "
                 "the driver's)");
      return;
    }
    if (strcmp(gpu->cluster, topo->gpus[0].cluster) != 0 || gpu->clique.value != topo->gpus[0].clique.value) {
      check_say(check, CHECK_FAIL, "GPU%d (%s) is in another cluster or clique than GPU0: %s", i, gpu->bus_id, source);
      check_mean(check, "NVLink does not reach from one fabric partition into another.");
      check_mend(check, "put the GPUs into one partition of the Fabric Manager");
      return;
    }
  }
  if (known == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nvmlDeviceGetGpuFabricInfoV does not answer (GPUs before Hopper do not)");
    check_mend(check, "where there are NVSwitches: systemctl status nvidia-fabricmanager");
  } else {
    check_say(check, CHECK_OK, "%s: %d GPU%s completed, %d without a fabric",
              topo_source(topo, topo->gpus[0].fabric.source), supported, supported == 1 ? "" : "s", known - supported);
  }
}
