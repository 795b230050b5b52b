/* SPDX-License-Identifier: Apache-2.0
 *
 * check_p2p.c: checks of peer access, for every ordered pair; see check.h.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/tools/topo/check.h"

/* How many ordered pairs are in which state, and the first that is not OK. */
struct tally {
  int ok, fail, unknown;
  int from, to; /* of the first FAIL */
  struct topo_fact fact;
};

static void tally_add(struct tally* tally, int from, int to, const struct topo_fact* fact) {
  tally->ok += fact->state == TOPO_OK;
  tally->unknown += fact->state == TOPO_NOT_OBSERVABLE;
  if (fact->state != TOPO_FAIL) return;
  if (tally->fail++ > 0) return;
  tally->from = from;
  tally->to = to;
  tally->fact = *fact;
}

/* `pick` gives the fact of a pair, or NULL to leave it out. */
static struct tally tally_pairs(const struct topo* topo,
                                const struct topo_fact* (*pick)(const struct topo_pair* pair)) {
  struct tally tally = {0};
  for (int from = 0; from < topo->ngpus; from++) {
    for (int to = 0; to < topo->ngpus; to++) {
      const struct topo_fact* fact = from != to ? pick(topo_pair(topo, from, to)) : NULL;
      if (fact != NULL) tally_add(&tally, from, to, fact);
    }
  }
  return tally;
}

static const struct topo_fact* pick_read(const struct topo_pair* pair) { return &pair->p2p_read; }
static const struct topo_fact* pick_write(const struct topo_pair* pair) { return &pair->p2p_write; }
static const struct topo_fact* pick_access(const struct topo_pair* pair) { return &pair->access; }
static const struct topo_fact* pick_atomics(const struct topo_pair* pair) { return &pair->p2p_atomics; }
/* NVML's status for NVLink says something where there are links. */
static const struct topo_fact* pick_nvlink(const struct topo_pair* pair) {
  return pair->nvlink_count.value > 0 ? &pair->p2p_nvlink : NULL;
}

static void say_failed(struct check* check, const struct topo* topo, const char* what, const struct tally* tally,
                       const char* status) {
  check_say(check, CHECK_FAIL, "%s fails for %d of %d ordered pairs, first from GPU%d (%s) to GPU%d (%s): %s: %s", what,
            tally->fail, tally->ok + tally->fail + tally->unknown, tally->from, topo->gpus[tally->from].bus_id,
            tally->to, topo->gpus[tally->to].bus_id, topo_source(topo, tally->fact.source), status);
}

void check_p2p_access(const struct check_input* in, struct check* check) {
  static const struct {
    const char* name;
    const struct topo_fact* (*pick)(const struct topo_pair* pair);
    int is_status; /* the value is an enum topo_p2p */
  } kinds[] = {{"read", pick_read, 1}, {"write", pick_write, 1}, {"CUDA peer access", pick_access, 0}};
  const char* separator = "";
  int known = 0;
  if (check_needs_gpus(in, 2, check)) return;
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    struct tally tally = tally_pairs(in->topo, kinds[i].pick);
    if (tally.fail > 0) {
      check->evidence[0] = '\0';
      say_failed(check, in->topo, kinds[i].name, &tally,
                 kinds[i].is_status ? topo_p2p_name((enum topo_p2p)tally.fact.value) : "no");
      check_mean(
          check,
          "arfusion needs peer access between all GPUs of a communicator, and turns everything down without it.");
      check_mend(
          check,
          "nvidia-smi topo -p2p rw; in a virtual machine the hypervisor must allow it; see pci.acs and iommu.type");
      return;
    }
    if (tally.ok == 0) continue;
    check_say(check, tally.unknown > 0 ? CHECK_NOT_OBSERVABLE : CHECK_OK, "%s%s: OK for %d of %d ordered pairs",
              separator, kinds[i].name, tally.ok, tally.ok + tally.unknown);
    separator = ", ";
    known++;
  }
  if (known == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nothing says which GPU may access which one's memory");
  }
}

void check_p2p_nvlink(const struct check_input* in, struct check* check) {
  struct tally tally = tally_pairs(in->topo, pick_nvlink);
  if (check_needs_gpus(in, 2, check)) return;
  if (tally.fail > 0) {
    say_failed(check, in->topo, "P2P over NVLink", &tally, topo_p2p_name((enum topo_p2p)tally.fact.value));
    check_mean(check, "NVLink is there, but the driver does not use it for peer access.");
    check_mend(check,
               "grep -i p2p /proc/driver/nvidia/params /etc/modprobe.d/*; remove NVreg_RegistryDwords that disable "
               "peer access");
  } else if (tally.ok > 0) {
    check_say(check, tally.unknown > 0 ? CHECK_NOT_OBSERVABLE : CHECK_OK,
              "OK for %d of %d ordered pairs with NVLink: nvmlDeviceGetP2PStatus", tally.ok, tally.ok + tally.unknown);
  } else {
    check_say(
        check, CHECK_NOT_OBSERVABLE,
        tally.unknown > 0 ? "nothing says whether peer access may use NVLink" : "no pair is known to have NVLink");
  }
}

void check_p2p_atomics(const struct check_input* in, struct check* check) {
  struct tally tally = tally_pairs(in->topo, pick_atomics);
  if (check_needs_gpus(in, 2, check)) return;
  if (tally.ok + tally.fail == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nothing says between which GPUs atomics work");
    return;
  }
  /* Over PCIe they mostly do not work, and nothing here asks for them. */
  check_say(check, CHECK_OK, "they work for %d of %d ordered pairs: nvmlDeviceGetP2PStatus", tally.ok,
            tally.ok + tally.fail);
  check_mean(check, "arfusion does not use atomics between GPUs.");
}

void check_p2p_functional(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check) || check_needs_gpus(in, 2, check)) return;
  check_say(check, CHECK_NOT_OBSERVABLE, "only writing and reading back tells; that is done on request");
  check_mean(check,
             "Drivers have said that peer access works where writes were lost or data changed. The plugin tests it "
             "before first use; if it fails everything is turned down.");
  check_mend(check, "arfusion-topo probe");
}
