/* SPDX-License-Identifier: Apache-2.0
 *
 * json_model.c: the model as JSON; see json.h.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/topo/json.h"

/* A fact in full: what is known, and who said so. */
static json_t* fact_value(const struct topo* topo, const struct topo_fact* fact) {
  return json_pack("{s:s, s:o, s:o}", "state", topo_state_name((enum topo_state)fact->state), "value",
                   fact->state == TOPO_NOT_OBSERVABLE ? json_null() : json_integer(fact->value), "source",
                   json_text(topo_source(topo, fact->source)));
}

/* ---------------------------------------------------------------- devices */

static json_t* links_value(const struct topo* topo, const struct topo_gpu* gpu) {
  json_t* links = json_array();
  for (int i = 0; i < gpu->nlinks; i++) {
    const struct topo_nvlink* link = &gpu->links[i];
    json_array_append_new(links, json_pack("{s:s, s:o, s:i, s:i, s:o}", "remote", topo_remote_name(link->remote),
                                           "target", json_text(link->target), "count", link->count, "inactive",
                                           link->inactive, "source", json_text(topo_source(topo, link->source))));
  }
  return links;
}

static json_t* numa_or_null(const struct topo* topo, int numa) {
  return numa >= 0 && topo->numas[numa].id >= 0 ? json_integer(topo->numas[numa].id) : json_null();
}

static json_t* gpu_value(const struct topo* topo, int index) {
  const struct topo_gpu* gpu = &topo->gpus[index];
  const struct {
    const char* name;
    const struct topo_fact* fact;
  } facts[] = {{"cuda_ordinal", &gpu->cuda},
               {"nvml_index", &gpu->nvml},
               {"rank", &gpu->rank},
               {"sm", &gpu->sm},
               {"mig", &gpu->mig},
               {"fabric_state", &gpu->fabric},
               {"fabric_status", &gpu->fabric_status},
               {"fabric_health", &gpu->fabric_health},
               {"fabric_clique", &gpu->clique},
               {"gdr", &gpu->gdr},
               {"nvlink_active", &gpu->nvlink_active},
               {"nvlink_present", &gpu->nvlink_present},
               {"nvlink_version", &gpu->nvlink_version},
               {"nvlink_raw_mb_s", &gpu->nvlink_speed},
               {"nvlink_effective_mb_s", &gpu->nvlink_effective}};
  json_t* value =
      json_pack("{s:i, s:s, s:o, s:o, s:o, s:o}", "gpu", index, "bus_id", gpu->bus_id, "name", json_text(gpu->name),
                "uuid", json_text(gpu->uuid), "serial", json_text(gpu->serial), "numa", numa_or_null(topo, gpu->numa));
  json_object_set_new(value, "fabric_cluster", json_text(gpu->cluster));
  for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
    json_object_set_new(value, facts[i].name, fact_value(topo, facts[i].fact));
  }
  json_object_set_new(value, "nvlinks", links_value(topo, gpu));
  return value;
}

static json_t* device_value(const struct topo* topo, const struct topo_device* device) {
  static const char* const kinds[] = {"bridge", "gpu", "switch", "nic", "other"};
  char class_id[16] = "", id[16] = "";
  if (device->class_id != 0) snprintf(class_id, sizeof(class_id), "0x%06x", device->class_id);
  if (device->vendor != 0) snprintf(id, sizeof(id), "%04x:%04x", device->vendor, device->device);
  return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bus_id", json_text(device->bus_id), "kind",
                   kinds[device->kind], "parent",
                   device->parent >= 0 ? json_text(topo->devices[device->parent].bus_id) : json_null(), "numa",
                   numa_or_null(topo, device->numa), "class", json_text(class_id), "id", json_text(id), "link_mt_s",
                   fact_value(topo, &device->link_speed), "link_width", fact_value(topo, &device->link_width), "source",
                   json_text(topo_source(topo, device->source)));
}

static void write_devices(struct json_document* document, const struct topo* topo) {
  json_array_begin(document, "gpus");
  for (int i = 0; i < topo->ngpus; i++) json_array_element(document, gpu_value(topo, i));
  json_array_finish(document);

  json_array_begin(document, "switches");
  for (int i = 0; i < topo->nswitches; i++) {
    const struct topo_switch* sw = &topo->switches[i];
    json_array_element(document, json_pack("{s:o, s:i, s:o}", "bus_id", json_text(sw->bus_id), "group", sw->group,
                                           "source", json_text(topo_source(topo, sw->source))));
  }
  json_array_finish(document);

  json_array_begin(document, "nics");
  for (int i = 0; i < topo->nnics; i++) {
    const struct topo_nic* nic = &topo->nics[i];
    json_array_element(document,
                       json_pack("{s:o, s:o, s:o, s:o}", "bus_id", json_text(nic->bus_id), "name", json_text(nic->name),
                                 "speed_mbit_s", fact_value(topo, &nic->speed), "gdr", fact_value(topo, &nic->gdr)));
  }
  json_array_finish(document);

  json_array_begin(document, "numa_nodes");
  for (int i = 0; i < topo->nnumas; i++) {
    const struct topo_numa* numa = &topo->numas[i];
    json_array_element(
        document, json_pack("{s:o, s:o, s:o, s:o, s:o}", "numa", numa_or_null(topo, i), "cpus", json_text(numa->cpus),
                            "arch", json_text(numa->arch), "vendor", json_text(numa->vendor), "source",
                            json_text(topo_source(topo, numa->source))));
  }
  json_array_finish(document);

  json_array_begin(document, "pci_devices");
  for (int i = 0; i < topo->ndevices; i++) json_array_element(document, device_value(topo, &topo->devices[i]));
  json_array_finish(document);
}

/* ---------------------------------------------------------------- pairs */

/* The facts of a pair, by the names that both its values and its evidence have. */
enum pair_kind { KIND_NUMBER, KIND_PCIE, KIND_P2P };
static const struct {
  const char* name;
  size_t offset;
  enum pair_kind kind;
} pair_facts[] = {{"nvlink_count", offsetof(struct topo_pair, nvlink_count), KIND_NUMBER},
                  {"nvlink_version", offsetof(struct topo_pair, nvlink_version), KIND_NUMBER},
                  {"nvlink_raw_mb_s", offsetof(struct topo_pair, nvlink_raw), KIND_NUMBER},
                  {"nvlink_effective_mb_s", offsetof(struct topo_pair, nvlink_effective), KIND_NUMBER},
                  {"pcie", offsetof(struct topo_pair, pcie), KIND_PCIE},
                  {"p2p_read", offsetof(struct topo_pair, p2p_read), KIND_P2P},
                  {"p2p_write", offsetof(struct topo_pair, p2p_write), KIND_P2P},
                  {"p2p_nvlink", offsetof(struct topo_pair, p2p_nvlink), KIND_P2P},
                  {"p2p_atomics", offsetof(struct topo_pair, p2p_atomics), KIND_P2P},
                  {"cuda_access", offsetof(struct topo_pair, access), KIND_NUMBER}};
#define PAIR_FACTS (sizeof(pair_facts) / sizeof(pair_facts[0]))

static const struct topo_fact* pair_fact(const struct topo_pair* pair, size_t i) {
  return (const struct topo_fact*)((const char*)pair + pair_facts[i].offset);
}

static json_t* pair_fact_value(const struct topo_fact* fact, enum pair_kind kind) {
  if (fact->state == TOPO_NOT_OBSERVABLE) return json_null();
  switch (kind) {
    case KIND_PCIE: return json_string(topo_pcie_smi_name((enum topo_pcie)fact->value));
    case KIND_P2P: return json_string(topo_p2p_name((enum topo_p2p)fact->value));
    default: return json_integer(fact->value);
  }
}

/* How the facts of pairs are known: most share one set of states and sources, so that each set is written once. */
struct evidence {
  struct topo_pair* sets; /* values are 0 */
  int nsets, capacity;
  int last; /* the one found last: neighbours mostly share it */
};

/* A pair's states and sources without its values. */
static struct topo_pair evidence_of(const struct topo_pair* pair) {
  struct topo_pair set;
  memset(&set, 0, sizeof(set)); /* compared as bytes */
  for (size_t i = 0; i < PAIR_FACTS; i++) {
    struct topo_fact* fact = (struct topo_fact*)((char*)&set + pair_facts[i].offset);
    fact->state = pair_fact(pair, i)->state;
    fact->source = pair_fact(pair, i)->source;
  }
  return set;
}

/* The index of the set, which is added if it is new; -1: no memory. */
static int evidence_index(struct evidence* evidence, const struct topo_pair* pair) {
  struct topo_pair set = evidence_of(pair);
  if (evidence->last < evidence->nsets && memcmp(&evidence->sets[evidence->last], &set, sizeof(set)) == 0) {
    return evidence->last;
  }
  for (int i = 0; i < evidence->nsets; i++) {
    if (memcmp(&evidence->sets[i], &set, sizeof(set)) == 0) return evidence->last = i;
  }
  if (evidence->nsets == evidence->capacity) {
    int capacity = evidence->capacity * 2 + 16;
    struct topo_pair* grown = realloc(evidence->sets, (size_t)capacity * sizeof(*grown));
    if (grown == NULL) return -1;
    evidence->sets = grown;
    evidence->capacity = capacity;
  }
  evidence->sets[evidence->nsets] = set;
  return evidence->last = evidence->nsets++;
}

/* What is said of a pair apart from which one it is: neighbours mostly say the same, so that the text is kept. */
struct pair_text {
  struct topo_pair pair;
  int evidence;
  char* text; /* NULL: nothing yet; to be freed */
};

static int pair_text_make(const struct topo* topo, int from, int to, int evidence, struct pair_text* kept) {
  const struct topo_pair* pair = topo_pair(topo, from, to);
  char cell[8];
  if (kept->text != NULL && kept->evidence == evidence && memcmp(&kept->pair, pair, sizeof(*pair)) == 0) return 0;
  topo_pair_cell(topo, from, to, cell);
  json_t* value = json_pack("{s:s, s:s, s:s}", "cell", cell, "nccl_path", topo_pair_nccl_path(topo, from, to), "via",
                            topo_via_name((enum topo_via)pair->via));
  for (size_t i = 0; i < PAIR_FACTS; i++) {
    json_object_set_new(value, pair_facts[i].name, pair_fact_value(pair_fact(pair, i), pair_facts[i].kind));
  }
  json_object_set_new(value, "evidence", json_integer(evidence));
  free(kept->text);
  kept->text = value != NULL ? json_dumps(value, 0) : NULL;
  kept->pair = *pair;
  kept->evidence = evidence;
  json_decref(value);
  return kept->text != NULL ? 0 : -1;
}

static json_t* evidence_value(const struct topo* topo, const struct topo_pair* set) {
  json_t* value = json_object();
  for (size_t i = 0; i < PAIR_FACTS; i++) {
    const struct topo_fact* fact = pair_fact(set, i);
    json_object_set_new(value, pair_facts[i].name,
                        json_pack("{s:s, s:o}", "state", topo_state_name((enum topo_state)fact->state), "source",
                                  json_text(topo_source(topo, fact->source))));
  }
  return value;
}

static void write_pairs(struct json_document* document, const struct topo* topo) {
  struct evidence evidence = {0};
  struct pair_text kept = {0};
  json_array_begin(document, "pairs");
  for (int from = 0; from < topo->ngpus; from++) {
    for (int to = 0; to < topo->ngpus; to++) {
      if (from == to) continue;
      int index = evidence_index(&evidence, topo_pair(topo, from, to));
      if (index < 0 || pair_text_make(topo, from, to, index, &kept) != 0) {
        json_array_element(document, NULL);
      } else { /* a bus id has nothing in it that JSON would escape */
        json_array_text(document, "{\"from\": \"%s\", \"to\": \"%s\", %s", topo->gpus[from].bus_id,
                        topo->gpus[to].bus_id, kept.text + 1);
      }
    }
  }
  json_array_finish(document);
  json_array_begin(document, "pair_evidence");
  for (int i = 0; i < evidence.nsets; i++) json_array_element(document, evidence_value(topo, &evidence.sets[i]));
  json_array_finish(document);
  free(evidence.sets);
  free(kept.text);
}

/* ---------------------------------------------------------------- the document */

int json_overview(const struct topo* topo, const struct decision* decision) {
  struct json_document document;
  json_begin(&document, "overview");
  json_decision(&document, topo, decision);
  json_machine(&document, topo);
  write_devices(&document, topo);
  write_pairs(&document, topo);
  json_array_begin(&document, "findings");
  for (int i = 0; i < topo->nfindings; i++) {
    const struct topo_finding* finding = &topo->findings[i];
    json_array_element(&document, json_pack("{s:s, s:s, s:o, s:i, s:o}", "id", finding->id, "state",
                                            topo_state_name(finding->state), "text", json_text(finding->text), "line",
                                            finding->line, "element", json_text(finding->element)));
  }
  json_array_finish(&document);
  return json_end(&document, decision->status);
}
