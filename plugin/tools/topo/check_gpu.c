/* SPDX-License-Identifier: Apache-2.0
 *
 * check_gpu.c: checks of drivers, libraries and single GPUs; see check.h.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/tools/topo/check.h"
#include "plugin/tools/topo/text.h"

/* What kept a library from being opened or asked, as evidence; or `otherwise`. */
static const char* finding_text(const struct check_input* in, const char* id, const char* otherwise) {
  const struct topo_finding* finding = tool_finding(in->topo, id, NULL);
  return finding != NULL ? finding->text : otherwise;
}

/* A program that was built without CUDA knows nothing of what CUDA would say. */
static int cuda_was_asked(const struct check_input* in) { return in->topo->cuda_runtime.state == TOPO_OK; }
static const char* cuda_not_asked(const struct check_input* in) {
  return finding_text(in, "cuda.open", "CUDA was not asked");
}

void check_driver_version(const struct check_input* in, struct check* check) {
  if (in->topo->driver[0] != '\0') {
    check_say(check, CHECK_OK, "nvmlSystemGetDriverVersion: %s", in->topo->driver);
    return;
  }
  if (check_needs_live(in, check)) return;
  /* With GPUs in the PCI tree the driver should be there. */
  check_say(check, in->topo->ngpus > 0 ? CHECK_FAIL : CHECK_NOT_OBSERVABLE, "%s",
            finding_text(in, "nvml.open", "NVML does not say"));
  if (in->topo->ngpus > 0) {
    check_mean(check, "There are GPUs in the PCI tree, but no driver that answers: nothing can use them.");
    check_mend(check, "nvidia-smi (says what is missing); in a container: docker run --gpus all ...");
  }
}

void check_cuda_version(const struct check_input* in, struct check* check) {
  const struct topo_fact *driver = &in->topo->cuda_driver, *runtime = &in->topo->cuda_runtime;
  char have[16], need[16];
  if (check_needs_live(in, check)) return;
  if (driver->state != TOPO_OK || driver->value == 0) { /* 0: there is no driver */
    check_say(check, CHECK_NOT_OBSERVABLE, "%s",
              cuda_was_asked(in) ? "CUDA does not say which version the driver is of" : cuda_not_asked(in));
    return;
  }
  text_cuda_version(have, sizeof(have), driver->value);
  check_say(check, CHECK_OK, "%s: %s", topo_source(in->topo, driver->source), have);
  if (runtime->state != TOPO_OK) return;
  text_cuda_version(need, sizeof(need), runtime->value);
  /* Within a major version older drivers run what newer toolkits built. */
  check_say(check, driver->value / 1000 < runtime->value / 1000 ? CHECK_FAIL : CHECK_OK, "; the CUDA runtime here: %s",
            need);
  if (check->status == CHECK_OK) return;
  check_mean(check, "The driver is too old for the CUDA that arfusion was built with: its kernels do not load.");
  check_mend(check, "install a driver of CUDA %d.0 or later, or build with an older CUDA (make CUDA_HOME=...)",
             runtime->value / 1000);
}

void check_cuda_start(const struct check_input* in, struct check* check) {
  int shown = 0;
  if (check_needs_live(in, check)) return;
  for (int i = 0; i < in->topo->ngpus; i++) shown += in->topo->gpus[i].cuda.state == TOPO_OK;
  if (shown > 0) {
    check_say(check, CHECK_OK, "CUDA starts and shows %d of %d GPUs", shown, in->topo->ngpus);
    return;
  }
  check_say(check, decide_cuda_fails(in->topo) ? CHECK_FAIL : CHECK_NOT_OBSERVABLE, "%s",
            finding_text(in, "cuda.open", "CUDA shows no GPU"));
  if (check->status != CHECK_FAIL) return;
  check_mean(check,
             "There are GPUs, but CUDA does not start. Error 802 (system not yet initialized) means that the "
             "NVSwitches are not set up.");
  check_mend(check, "802: systemctl restart nvidia-fabricmanager; otherwise: dmesg | grep -i nvrm");
}

void check_nccl_version(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check)) return;
  check_say(check, in->host->nccl_version > 0 ? CHECK_OK : CHECK_NOT_OBSERVABLE, "%s", in->host->nccl);
  if (check->status == CHECK_OK) return;
  check_mean(check, "An application may bring its own NCCL. Without any, nothing completes what arfusion turns down.");
  check_mend(check, "ARFUSION_NCCL_LIB=/path/to/libnccl.so.2, or apt-get install libnccl2");
}

void check_gpu_visible(const struct check_input* in, struct check* check) {
  const struct topo_finding* hidden = tool_finding(in->topo, "gpu.hidden", NULL);
  const char *where, *visible = in->host != NULL ? host_setting_get(in->host, "CUDA_VISIBLE_DEVICES", &where) : NULL;
  int in_cuda = 0, in_nvml = 0;
  for (int i = 0; i < in->topo->ngpus; i++) {
    in_cuda += in->topo->gpus[i].cuda.state == TOPO_OK;
    in_nvml += in->topo->gpus[i].nvml.state == TOPO_OK;
  }
  if (in->host == NULL) {
    check_say(check, in->topo->ngpus > 0 ? CHECK_OK : CHECK_NOT_OBSERVABLE, "the file has %d GPU%s", in->topo->ngpus,
              in->topo->ngpus == 1 ? "" : "s");
    return;
  }
  check_say(check, CHECK_OK, "%d GPU%s: NVML shows %d", in->topo->ngpus, in->topo->ngpus == 1 ? "" : "s", in_nvml);
  if (cuda_was_asked(in)) {
    check_say(check, CHECK_OK, ", CUDA %d", in_cuda);
  } else {
    check_say(check, CHECK_NOT_OBSERVABLE, "; %s", cuda_not_asked(in));
  }
  if (visible != NULL) check_say(check, check->status, "; CUDA_VISIBLE_DEVICES=%s (%s)", visible, where);
  if (hidden != NULL) check_say(check, check->status, "; %s", hidden->text);
  if (in->topo->ngpus == 0) {
    check->status = CHECK_NOT_OBSERVABLE;
    check_mean(check, "There is no GPU, or this container was not given one.");
    check_mend(check, "nvidia-smi -L; in a container: docker run --gpus all ...");
  } else if (visible != NULL && (visible[0] == '\0' || visible[0] == '-')) {
    check->status = CHECK_WARN;
    check_mean(check, "CUDA_VISIBLE_DEVICES hides every GPU from CUDA.");
    check_mend(check, "unset CUDA_VISIBLE_DEVICES");
  } else if (in_cuda == 1 && in->topo->ngpus > 1) {
    check->status = CHECK_WARN;
    check_mean(check,
               "One GPU a process or container: ranks in containers of their own cannot map each other's memory.");
    check_mend(check, "give every rank all GPUs of its communicator, and let it choose one by CUDA ordinal");
  } else if (hidden != NULL) {
    check->status = CHECK_WARN;
    check_mean(check, "Ranks on GPUs that are not shown here cannot be reached from here.");
    check_mend(check, "docker run --gpus all ..., or unset NVIDIA_VISIBLE_DEVICES");
  }
}

void check_gpu_order(const struct check_input* in, struct check* check) {
  int compared = 0, differ = -1;
  if (check_needs_live(in, check) || check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < in->topo->ngpus; i++) {
    const struct topo_gpu* gpu = &in->topo->gpus[i];
    if (gpu->cuda.state != TOPO_OK || gpu->nvml.state != TOPO_OK) continue;
    compared++;
    if (gpu->cuda.value != gpu->nvml.value && differ < 0) differ = i;
  }
  if (compared == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "no GPU is shown by both NVML and CUDA");
  } else if (differ < 0) {
    check_say(check, CHECK_OK, "CUDA's and NVML's numbers agree for %d GPU%s", compared, compared == 1 ? "" : "s");
  } else {
    const struct topo_gpu* gpu = &in->topo->gpus[differ];
    check_say(check, CHECK_OK, "%s is CUDA device %d and nvidia-smi's GPU %d", gpu->bus_id, gpu->cuda.value,
              gpu->nvml.value);
    check_mean(check, "The numbers of nvidia-smi and of CUDA name different GPUs: go by bus id or UUID.");
    check_mend(check, "CUDA_DEVICE_ORDER=PCI_BUS_ID, and no CUDA_VISIBLE_DEVICES, makes them equal");
  }
}

void check_gpu_arch(const struct check_input* in, struct check* check) {
  int known = 0;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < in->topo->ngpus; i++) {
    const struct topo_gpu* gpu = &in->topo->gpus[i];
    if (gpu->sm.state != TOPO_OK) continue;
    known++;
    if (gpu->sm.value >= DECIDE_FIRST_SM) continue;
    check_say(check, CHECK_FAIL, "GPU%d (%s) is sm_%d: %s", i, gpu->bus_id, gpu->sm.value,
              topo_source(in->topo, gpu->sm.source));
    check_mean(check, "arfusion's kernels need sm_%d or later; every request is turned down.", DECIDE_FIRST_SM);
    return;
  }
  if (known == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nothing says what the GPUs' architecture is");
  } else {
    const struct topo_gpu* gpu = &in->topo->gpus[0];
    check_say(check, CHECK_OK, "%d of %d GPUs are sm_%d or later (GPU0: sm_%d: %s)", known, in->topo->ngpus,
              DECIDE_FIRST_SM, gpu->sm.value, topo_source(in->topo, gpu->sm.source));
    if (known < in->topo->ngpus) check->status = CHECK_NOT_OBSERVABLE;
  }
}

void check_gpu_mig(const struct check_input* in, struct check* check) {
  int known = 0;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < in->topo->ngpus; i++) {
    const struct topo_gpu* gpu = &in->topo->gpus[i];
    if (gpu->mig.state == TOPO_NOT_OBSERVABLE) continue;
    known++;
    if (gpu->mig.value == 0) continue;
    check_say(check, CHECK_FAIL, "MIG is on for GPU%d (%s): %s", i, gpu->bus_id,
              topo_source(in->topo, gpu->mig.source));
    check_mean(check, "A GPU in MIG mode has no peer access.");
    check_mend(check, "nvidia-smi -i %s -mig 0", gpu->bus_id);
    return;
  }
  check_say(check, known == in->topo->ngpus ? CHECK_OK : CHECK_NOT_OBSERVABLE,
            known > 0 ? "MIG is off for %d of %d GPUs" : "nothing says whether MIG is on (%d of %d GPUs known)", known,
            in->topo->ngpus);
}
