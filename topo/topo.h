/* SPDX-License-Identifier: Apache-2.0
 *
 * topo.h: which GPUs reach which, how fast, and how that is known. One model whatever it comes from: this machine
 * (hwloc, NVML, CUDA) or a file of another one (hwloc XML, NCCL topology XML). Facts only, no policy, no
 * environment.
 *
 * Life cycle: topo_discover_live or topo_read_...xml makes a model; all else reads it; topo_free ends it. Functions
 * that make or change a model (topo_redact, topo_free) need it for themselves; the others may be called from several
 * threads at once. Nothing is written to stdout or stderr, nothing exits. Functions return 0 on success; otherwise
 * -1 with *error filled in, and outputs untouched.
 */
#ifndef ARFUSION_TOPO_H_
#define ARFUSION_TOPO_H_

#include <stddef.h>
#include <stdint.h>

/* ---------------------------------------------------------------- facts */

enum topo_state {
  TOPO_NOT_OBSERVABLE = 0, /* nothing said it; never a guess */
  TOPO_OK = 1,             /* known; for quantities: the value is known, be it 0 */
  TOPO_FAIL = 2            /* known, and it does not work */
};

/* One fact. `value` means something unless the state is TOPO_NOT_OBSERVABLE (then it is 0). `source` is what said
 * so, or what was asked in vain: topo_source gives its text. */
struct topo_fact {
  int32_t value;
  uint16_t source;
  uint8_t state; /* enum topo_state */
  uint8_t reserved;
};

/* PCIe paths, best first, as nvidia-smi topo -m tells them apart. */
enum topo_pcie {
  TOPO_PCIE_SELF, /* the same board or device */
  TOPO_PCIE_PIX,  /* one PCIe switch */
  TOPO_PCIE_PXB,  /* several PCIe switches */
  TOPO_PCIE_PHB,  /* a host bridge */
  TOPO_PCIE_NODE, /* host bridges of one NUMA node */
  TOPO_PCIE_SYS   /* across NUMA nodes */
};

/* NVML's answers for a pair, also used where CUDA or a file gave them (nvmlGpuP2PStatus_t). */
enum topo_p2p {
  TOPO_P2P_OK,
  TOPO_P2P_CHIPSET,       /* the chipset does not support it */
  TOPO_P2P_GPU,           /* the GPU does not support it */
  TOPO_P2P_TOPOLOGY,      /* not between these slots */
  TOPO_P2P_DISABLED,      /* by a registry key of the driver */
  TOPO_P2P_NOT_SUPPORTED,
  TOPO_P2P_UNKNOWN
};

/* What an NVLink ends at. */
enum topo_remote { TOPO_REMOTE_GPU, TOPO_REMOTE_CPU, TOPO_REMOTE_SWITCH, TOPO_REMOTE_UNKNOWN };

/* How the NVLinks of a pair run. */
enum topo_via {
  TOPO_VIA_NONE,
  TOPO_VIA_DIRECT,
  TOPO_VIA_SWITCH,        /* through switches that are seen */
  TOPO_VIA_HIDDEN_SWITCH, /* through something invisible (virtual machines): assumed to be one fabric */
  TOPO_VIA_UNKNOWN        /* nvlink_count is not observable */
};

enum topo_device_kind { TOPO_DEVICE_BRIDGE, TOPO_DEVICE_GPU, TOPO_DEVICE_SWITCH, TOPO_DEVICE_NIC, TOPO_DEVICE_OTHER };

/* ---------------------------------------------------------------- the model */

/* "0000:81:00.0": lower case, four digits of domain or as many as it needs. */
#define TOPO_BUS_ID_BYTES 20
#define TOPO_MOST_GPUS 1024
#define TOPO_MOST_LINKS 256 /* of one GPU; more is an error in a file */

/* A CPU with its memory: a NUMA node. What NCCL has at a <cpu> of number -1 without processors is at no known one: such
 * a node has neither. */
struct topo_numa {
  int id;           /* the system's number; -1: not observable */
  char* cpus;       /* "0-95,192-287"; NULL: not observable */
  char arch[24];    /* "x86_64"; "": not observable */
  char vendor[24];  /* "GenuineIntel" */
  int family, model; /* -1: not observable */
  uint16_t source;
};

/* A node of the PCI tree. Parents stand before their children. */
struct topo_device {
  char bus_id[TOPO_BUS_ID_BYTES]; /* "" of a host bridge */
  enum topo_device_kind kind;
  int parent;        /* index in devices; -1: below the CPU */
  int numa;          /* index in numas; -1: not observable */
  int index;         /* in gpus, switches or nics, by kind; -1 */
  uint32_t class_id; /* 24 bits: 0x030200; 0: not observable */
  uint16_t vendor, device, subsystem_vendor, subsystem_device; /* 0: not observable */
  struct topo_fact link_speed; /* MT/s a lane, as it is now: idle GPUs train down */
  struct topo_fact link_width; /* lanes */
  uint16_t source;
};

/* The NVLinks of one GPU that end at one place. */
struct topo_nvlink {
  enum topo_remote remote;
  char target[TOPO_BUS_ID_BYTES]; /* "": invisible, or a CPU */
  int target_gpu;                 /* index in gpus; -1 */
  int target_switch;              /* index in switches; -1 */
  int count;                      /* active links; 0 only when `inactive` is not */
  int inactive;                   /* links that are there and not active */
  uint16_t source;
};

struct topo_gpu {
  char bus_id[TOPO_BUS_ID_BYTES]; /* the key */
  int device;                     /* index in devices; -1: the PCI tree does not show it */
  int numa;                       /* index in numas; -1: not observable */
  char name[96];                  /* "" : not observable, as below */
  char uuid[48];
  char serial[32];
  struct topo_fact cuda;          /* ordinal in this process */
  struct topo_fact nvml;          /* index */
  struct topo_fact rank;          /* in the file, if it says one */
  struct topo_fact sm;            /* 90 for sm_90 */
  struct topo_fact mig;           /* 1: on */
  struct topo_fact fabric;        /* 0 not supported, 1 not started, 2 in progress, 3 completed; OK: 0 or good */
  struct topo_fact fabric_status; /* nvmlReturn_t of the registration; 0 good. Only once completed */
  struct topo_fact fabric_health; /* NVML's mask */
  struct topo_fact clique;        /* fabric clique id */
  char cluster[40];               /* fabric cluster UUID */
  struct topo_fact gdr;           /* 1: GPUDirect RDMA */
  struct topo_fact nvlink_active;  /* links */
  struct topo_fact nvlink_present; /* links, active or not */
  struct topo_fact nvlink_version; /* 4 for NVLink 4 */
  struct topo_fact nvlink_speed;   /* MB/s one way of one link, raw: as nvidia-smi or the file gives it */
  struct topo_fact nvlink_effective; /* MB/s one way of one link that NCCL reckons with */
  struct topo_nvlink* links;
  int nlinks;
};

struct topo_switch {
  char bus_id[TOPO_BUS_ID_BYTES];
  int device; /* index in devices; -1: only known from the GPUs' links */
  int group;  /* switches that are seen to be linked, or that one GPU has links to, share one */
  uint16_t source;
};

struct topo_nic {
  char bus_id[TOPO_BUS_ID_BYTES];
  char name[32]; /* "mlx5_0"; "" */
  int device;    /* index in devices; -1 */
  struct topo_fact speed; /* Mb/s */
  struct topo_fact gdr;
};

/* From one GPU to another, in that direction. */
struct topo_pair {
  struct topo_fact nvlink_count;     /* links of this pair; 18 to each of seven peers is one budget of 18 */
  struct topo_fact nvlink_version;
  struct topo_fact nvlink_raw;       /* MB/s one way over all of them: as nvidia-smi or the file gives it */
  struct topo_fact nvlink_effective; /* MB/s one way over all of them: what NCCL reckons with */
  struct topo_fact pcie;             /* enum topo_pcie */
  struct topo_fact p2p_read;         /* these four: enum topo_p2p, and state OK only for TOPO_P2P_OK */
  struct topo_fact p2p_write;
  struct topo_fact p2p_nvlink;
  struct topo_fact p2p_atomics;
  struct topo_fact access;           /* cudaDeviceCanAccessPeer: 1 or 0 */
  uint8_t via;                       /* enum topo_via */
  uint8_t reserved[7];
};

/* Something about the model that a person should see: a file that contradicts itself, an NVML that did not answer. */
struct topo_finding {
  /* Stable: "xml.value", "xml.element", "xml.duplicate", "xml.hosts", "nvlink.self", "nvlink.target", "nvlink.count",
   * "nvlink.lopsided", "hwloc.open", "nvml.open", "nvml.call", "cuda.open", "cuda.call", "gpu.hidden". */
  const char* id;
  enum topo_state state; /* FAIL, or NOT_OBSERVABLE: something could not be learnt */
  char* text;      /* what was found, and where it was not taken over as it stands, what was done instead */
  int line;        /* of the file; 0: not from a line */
  char element[48]; /* "nvlink"; "" */
};

enum topo_origin { TOPO_FROM_LIVE, TOPO_FROM_HWLOC_XML, TOPO_FROM_NCCL_XML };

struct topo {
  enum topo_origin origin;
  char* file;            /* NULL: live */
  char host[256];        /* "": not observable */
  char driver[80];       /* NVIDIA's driver: "580.159.04"; "" */
  struct topo_fact cuda_driver, cuda_runtime; /* 13000 for 13.0 */
  char hwloc[40];        /* version of hwloc that was used; "" */
  int ngpus, nnumas, ndevices, nswitches, nnics, nfindings;
  struct topo_gpu* gpus; /* by bus id: NVML's and CUDA's orders may differ from it */
  struct topo_numa* numas;
  struct topo_device* devices;
  struct topo_switch* switches;
  struct topo_nic* nics;
  struct topo_finding* findings;
  struct topo_pair* pairs; /* [ngpus * ngpus], from * ngpus + to */
  char** sources;          /* texts by number; 0 is "" */
  int nsources;
  void* tree;              /* hwloc's own topology, if there is one */
};

/* ---------------------------------------------------------------- making one */

/* Why a file was not taken. */
struct topo_error {
  char text[320];   /* the whole sentence, with file, line and element where they are known */
  char file[256];   /* "": not about a file */
  int line, column; /* 0: not known */
  char element[48]; /* "" */
};

/* Limits of both readers: a file of more bytes, or elements nested deeper than this, is an error. */
#define TOPO_MOST_XML_BYTES (32u << 20)
#define TOPO_MOST_XML_DEPTH 128

enum {
  TOPO_USE_HWLOC = 1, /* PCI tree, NUMA nodes, CPU affinity */
  TOPO_USE_NVML = 2,  /* NVLinks, P2P status, fabric, MIG */
  TOPO_USE_CUDA = 4,  /* ordinals, peer access, architecture */
  TOPO_USE_ALL = 7
};

/* This machine. Whatever cannot be opened or does not answer leaves facts not observable and a finding; a machine
 * with no GPU gives a model with none. Starts CUDA in this process only with TOPO_USE_CUDA, and makes no context
 * then either. */
int topo_discover_live(unsigned use, struct topo** out, struct topo_error* error);

/* Another machine, from a file or from memory. `name` stands for the file in errors and sources. These four, and only
 * these, need expat (topo/xml): the tools have them, the plugin does not. hwloc XML of versions 1, 2 and 3 is read by
 * ourselves, so that every version of it is understood and errors have a line. */
int topo_read_hwloc_xml(const char* path, struct topo** out, struct topo_error* error);
int topo_read_hwloc_xml_buffer(const char* data, size_t bytes, const char* name, struct topo** out,
                               struct topo_error* error);
int topo_read_nccl_xml(const char* path, struct topo** out, struct topo_error* error);
int topo_read_nccl_xml_buffer(const char* data, size_t bytes, const char* name, struct topo** out,
                              struct topo_error* error);

void topo_free(struct topo* topo);

/* ---------------------------------------------------------------- writing one */

/* *text: `*bytes` characters and a NUL, to be freed with free(). The hwloc XML needs libhwloc: it is this machine's
 * topology, or for a file the machine as the model knows it (an error where libhwloc cannot hold all of it), and has
 * the NVLink matrix in it as distances of this name between the GPUs' PCI devices: MB/s one way, raw, what is not
 * observable as 0, the diagonal 1000000. */
#define TOPO_DISTANCES_NAME "arfusionNVLinkBandwidth"
/* And each GPU has an info of this name for each place that its NVLinks end at: "18 switch 0000:c3:00.0". */
#define TOPO_LINKS_INFO "arfusionNVLinks"
/* hwloc wants values where the model may have none. For a file's machine each host bridge has an info with the number
 * of its NUMA node, or "unknown"; and a NUMA node one that names what is made up: "number", "processors" or both. */
#define TOPO_NODE_INFO "arfusionNUMANode"
#define TOPO_UNKNOWN_INFO "arfusionUnknown"
int topo_write_hwloc_xml(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error);
int topo_write_nccl_xml(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error);

/* Removes UUIDs, serials, host hashes and the host's name, from what is written later too. */
void topo_redact(struct topo* topo);

/* ---------------------------------------------------------------- reading it */

static inline const struct topo_pair* topo_pair(const struct topo* topo, int from, int to) {
  return &topo->pairs[(size_t)from * (size_t)topo->ngpus + (size_t)to];
}

/* What said so: "nvmlDeviceGetP2PStatus", "machine.xml: <nvlink>". "": nobody was asked. */
const char* topo_source(const struct topo* topo, uint16_t source);

/* Index of a GPU by bus id (4 or 8 digits of domain, any case); -1: none. */
int topo_gpu_by_bus_id(const struct topo* topo, const char* bus_id);

/* Whether numas[numa] is a place: its number or its processors are known. What is at another is somewhere. */
int topo_numa_known(const struct topo* topo, int numa);

/* Whether a NUMA node has a processor; 0 also if it is not observable. */
int topo_numa_has_cpu(const struct topo_numa* numa, int cpu);

/* Writes the key form of `text` to `out`; -1 if it is not a bus id. */
int topo_bus_id_parse(const char* text, char out[TOPO_BUS_ID_BYTES]);

/* Static texts. */
const char* topo_state_name(enum topo_state state);    /* "OK", "FAIL", "NOT OBSERVABLE" */
const char* topo_pcie_smi_name(enum topo_pcie pcie);   /* "X", "PIX", "PXB", "PHB", "NODE", "SYS" */
const char* topo_pcie_nccl_name(enum topo_pcie pcie);  /* "LOC", "PIX", "PXB", "PHB", "PHB", "SYS" */
const char* topo_p2p_name(enum topo_p2p p2p);          /* "OK", "chipset not supported", ... */
const char* topo_remote_name(enum topo_remote remote); /* "GPU", "CPU", "switch", "unknown" */
const char* topo_via_name(enum topo_via via);          /* "none", "direct", "switch", "hidden switch", "unknown" */

/* The cell of `nvidia-smi topo -m`: "X", "NV18", "PIX", ..., "?" (at most 8 characters). Where NVLink is not
 * observable the cell is the PCIe path, which then says nothing about NVLink. */
void topo_pair_cell(const struct topo* topo, int from, int to, char cell[8]);

/* NCCL's path type: "LOC", "NVL", "PIX", ..., or "DIS" where nothing is known. */
const char* topo_pair_nccl_path(const struct topo* topo, int from, int to);

/* ---------------------------------------------------------------- the verdict */

/* How far NCCL_P2P_LEVEL lets peer access go. */
enum topo_level {
  TOPO_LEVEL_LOC, /* never */
  TOPO_LEVEL_NVL,
  TOPO_LEVEL_PIX,
  TOPO_LEVEL_PXB,
  TOPO_LEVEL_PHB, /* within a NUMA node */
  TOPO_LEVEL_SYS
};

/* From NCCL_P2P_LEVEL's words (any case) or its older numbers 0 to 5 and more; -1: neither. */
int topo_level_parse(const char* text, enum topo_level* level);

/* What the values of NCCL_P2P_DISABLE and NCCL_P2P_LEVEL leave; NULL or "" is not set. -1 if the latter is not a
 * level: it is ignored then, as NCCL does. */
int topo_level_of_settings(const char* disable, const char* text, enum topo_level* level);

/* One question about a set of GPUs, answered for all ordered pairs. When it is not OK, from and to are the first
 * pair (indices in gpus) that is not, or -1 when it is not about a pair. */
struct topo_answer {
  enum topo_state state;
  int from, to;
  char why[256]; /* one sentence; "" if all is well and there is nothing to add */
  uint16_t source;
};

struct topo_verdict {
  /* All of them reach each other by NVLink: direct links for every pair, or all through switches with equal link
   * counts, completed fabric of one cluster and clique where there is one, and no P2P status that says otherwise. */
  struct topo_answer nvlink;
  int assumed;      /* nvlink is OK, through switches that nothing shows, or not how they are linked; see why */
  int nvlink_count; /* of every pair, if they are equal; 0 */
  /* Peer reads and writes for every ordered pair, as NVML and CUDA say, within the level. This decides: arfusion's
   * kernels need it to be not FAIL, and a write test that passes. */
  struct topo_answer p2p;
  enum topo_pcie worst_pcie; /* among pairs without NVLink; TOPO_PCIE_SELF: there are none, or it is not observable */
};

/* gpus: `ngpus` indices; NULL: all of the model's. Fewer than two GPUs: not observable, and says so. */
void topo_verdict(const struct topo* topo, const int* gpus, int ngpus, enum topo_level level,
                  struct topo_verdict* verdict);

#endif
