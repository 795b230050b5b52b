# SPDX-License-Identifier: Apache-2.0
#
# make deps      install the Debian packages that the build and the tests need (nothing to do when all are there)
# make           everything, into build/; the CUDA code too where nvcc is found
# make demo      the allreduces of real models, on two GPUs or on the host
# make test      all tests that need no GPU         make test-gpu   those that need one or two
# make bench     the programs of test/bench
# make test-torch  the Python package's tests with PyTorch, in a virtual environment in build/
# make test-emu  the CUDA kernels on emulated GPUs for SECONDS=60
# make test-model  the kernels' protocols in Promela, checked by spin
# make test-mutations  small bugs put into kernels and plugin, each of which must make a test fail
# make fuzz      readers of files, messages and requests under libFuzzer (clang), FUZZ_SECONDS=60 each, two at a time
# make test-long the last three, then installation and packages in a minimal Debian system; goes on if one fails
# make resources registers, shared memory, stack and spills of every kernel; fails if one spills
# make install   PREFIX=/usr/local DESTDIR= LIBDIR=$(PREFIX)/lib            make clean
# make deb       Debian packages, in build/deb      make tarball   the same as make install, to unpack anywhere
# make docs      man pages and completions          make readme    README.md's tables, again from the code
# make wheel     the Python package with its shared objects, in build/
#
# Variables: CUDA_HOME NCCL_HOME NVCC_GENCODE BUILDDIR PYTHON; DEBUG=1 VERBOSE=1 WERROR=1 ASAN=1 UBSAN=1 TSAN=1; CUDA=0
# builds for the host alone, in a BUILDDIR of its own; RACECHECK=1 what compute-sanitizer's racecheck can follow
# (test/gpu/sanitize.sh). What was built with other flags is built again.

ifneq ($(filter deps,$(MAKECMDGOALS)),)
# What deps installs is looked for only after it has run: the other goals get a make of their own, one after the other.
.NOTPARALLEL:
OTHER_GOALS := $(filter-out deps,$(MAKECMDGOALS))
.PHONY: deps $(OTHER_GOALS)
deps:
	@sh plugin/packaging/deps.sh
$(OTHER_GOALS): deps
	+@$(MAKE) --no-print-directory $@
else

PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
PYTHON   ?= /usr/bin/python3
VARIANT  := $(if $(filter 1,$(ASAN)),asan)$(if $(filter 1,$(UBSAN)),ubsan)$(if $(filter 1,$(TSAN)),tsan)
BUILDDIR ?= build$(if $(VARIANT),/$(VARIANT))
B        := $(BUILDDIR)
VERSION  := 0.1.0

# ---------------------------------------------------------------- tools and flags
CC       ?= gcc
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes $(if $(filter 1,$(WERROR)),-Werror)
SANITIZE := $(if $(filter 1,$(ASAN)),-fsanitize=address) \
            $(if $(filter 1,$(UBSAN)),-fsanitize=undefined -fno-sanitize-recover=undefined) \
            $(if $(filter 1,$(TSAN)),-fsanitize=thread)
DEFINES  := -DARFUSION_VERSION=\"$(VERSION)\"
C_FLAGS   = -std=c11 -D_GNU_SOURCE $(CFLAGS) $(if $(filter 1,$(DEBUG)),-O0 -g3) $(WARNINGS) $(SANITIZE) \
            $(DEFINES) -I. -Iinclude \
            -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -pthread
LD_FLAGS  = $(LDFLAGS) $(SANITIZE) -pthread
LIBS     := -ldl -lrt -lm
Q        := $(if $(filter 1,$(VERBOSE)),,@)
say       = $(if $(filter 1,$(VERBOSE)),,@printf '  %-5s %s\n' $(1) $(2))

# ---------------------------------------------------------------- CUDA and NCCL's header, if they are there
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc) \
                                                 $(shell command -v nvcc 2>/dev/null)))
NVCC      := $(if $(filter 0,$(CUDA)),,$(wildcard $(CUDA_HOME)/bin/nvcc))
ifneq ($(NVCC),)
CUDA_LIB := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a \
                                   $(CUDA_HOME)/targets/*/lib/libcudart_static.a))
DEFINES  += -DARFUSION_HAVE_CUDA=1 $(if $(wildcard $(CUDA_HOME)/include/nvtx3/nvToolsExt.h),-DARFUSION_HAVE_NVTX=1)
C_FLAGS  += -isystem $(CUDA_HOME)/include
LIBS     := $(CUDA_LIB) $(LIBS)
NVCC_GENCODE ?= -gencode=arch=compute_80,code=[compute_80,sm_80] -gencode=arch=compute_89,code=sm_89 \
  -gencode=arch=compute_90,code=[compute_90,sm_90] -gencode=arch=compute_100f,code=sm_100f \
  -gencode=arch=compute_120f,code=sm_120f
DEFINES  += $(if $(filter 1,$(RACECHECK)),-DARFUSION_RACECHECK=1)
NVCC_FLAGS := -std=c++17 -O3 -I. -Iinclude $(DEFINES) $(NVCC_GENCODE) -ccbin $(CC:gcc=g++) --fmad=false -lineinfo \
  -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
  $(if $(filter 1,$(WERROR)),-Werror all-warnings)
endif
NCCL_H := $(firstword $(wildcard $(addsuffix /include/nccl.h,$(NCCL_HOME) $(CUDA_HOME) /usr/local /usr)))
DEFINES += $(if $(and $(NVCC),$(NCCL_H)),-DARFUSION_HAVE_NCCL_H=1)
C_FLAGS += $(if $(and $(NVCC),$(NCCL_H)),-isystem $(dir $(NCCL_H)))

# A folder's objects are all with CUDA or all without: mixed, they do not link.
KIND  := $(if $(NVCC),with CUDA,without CUDA)
BUILT := $(shell cat $(B)/kind 2>/dev/null)
ifeq ($(filter clean,$(MAKECMDGOALS)),)
ifneq ($(filter-out $(KIND),$(BUILT)),)
$(error $(B) was built $(BUILT), this would be $(KIND): make clean, or give another BUILDDIR)
endif
endif

# ---------------------------------------------------------------- what is built from what (*_cuda.c only with CUDA)
sources  = $(filter-out $(if $(NVCC),,%_cuda.c),$(sort $(wildcard $(addsuffix /*.c,$(1)))))
cuda     = $(if $(NVCC),$(sort $(wildcard $(addsuffix /*.cu,$(1)))))
objects  = $(patsubst %,$(B)/obj/%.o,$(1))

PLUGIN_OBJECTS := $(call objects,$(call sources,topo kernels/host plugin/core plugin/net) $(call cuda,kernels/cuda) \
                    $(filter plugin/nccl/profiler%,$(call sources,plugin/nccl)))
TOPO_XML       := $(call objects,$(call sources,topo/xml))
TOPO_XML_LIBS  := -l:libexpat.a
HOST_OBJECTS   := $(call objects,$(filter-out plugin/host/plugin_choice.c,$(call sources,plugin/host)))
FRONT_OBJECTS  := $(call objects,$(filter-out plugin/nccl/profiler%,$(call sources,plugin/nccl)) plugin/nccl/forward.S \
                    $(filter plugin/host/library.c plugin/host/plugin_load.c plugin/host/nccl_gather%, \
                      $(call sources,plugin/host)))
BENCH_OBJECTS  := $(call objects,$(call sources,plugin/tools/bench) $(call cuda,plugin/tools/bench))
BENCH_LOADER   := $(call objects,plugin/host/plugin_load.c plugin/host/plugin_choice.c)
BENCH_LIBS     := -l:libjansson.a -l:libmd.a
TOPO_OBJECTS   := $(call objects,$(call sources,plugin/tools/topo) $(call cuda,plugin/tools/topo))
TOPO_LIBS      := -l:libjansson.a $(TOPO_XML_LIBS)

PLUGIN   := $(B)/libarfusion-plugin.so
NCCL_NAMES := libnccl-net-arfusion.so libnccl-profiler-arfusion.so
HOSTLIB  := $(if $(HOST_OBJECTS),$(B)/libarfusion.so.1)
FRONT    := $(B)/libarfusion-nccl.so
BENCH    := $(if $(BENCH_OBJECTS),$(B)/arfusion-bench)
TOPO     := $(if $(TOPO_OBJECTS),$(B)/arfusion-topo)
UNIT     := $(patsubst %.c,$(B)/%,$(filter test/unit/test_%,$(call sources,test/unit)))
SUPPORT  := $(call objects,$(filter test/unit/support%,$(call sources,test/unit)))
GPU      := $(if $(NVCC),$(patsubst %.c,$(B)/%,$(call sources,test/gpu)))
GPU_SUPPORT := $(call objects,$(call cuda,test/gpu))
HOSTS    := $(if $(NVCC),$(B)/test/gpu/libhosts.so)
GPUTEST  := $(filter $(B)/test/gpu/test_%,$(GPU))
# No threads there: nothing for TSan.
EMU      := $(if $(filter 1,$(TSAN)),,$(B)/test/emu/test_emu_kernels)
EMU_OBJECTS := $(patsubst %,$(B)/emu/%.o,$(wildcard test/emu/*.c test/emu/*.cu kernels/cuda/*.cu) \
                 $(addprefix plugin/tools/bench/,reference_quant.c number.c bench.c))
# The library in front of a libnccl for host memory, with streams as CUDA has them.
MOCK_NCCL   := $(B)/test/nccl/libnccl.so.2
MOCK_PLUGIN := $(B)/test/nccl/libarfusion-plugin-stream.so
NCCLTEST    := $(patsubst %.c,$(B)/%,$(filter test/nccl/test_%,$(call sources,test/nccl)))
NCCL_SUPPORT := $(call objects,test/nccl/support.c test/nccl/cases.c test/nccl/plan.c plugin/tools/bench/number.c)
MPICC    := $(shell command -v mpicc 2>/dev/null)
BENCHES  := $(patsubst %.c,$(B)/%,$(filter-out $(if $(MPICC),,test/bench/mpi_baseline.c),$(call sources,test/bench)))

.PHONY: all deps demo test test-gpu test-torch test-emu test-model test-mutations test-long bench fuzz resources clean \
  programs
.DELETE_ON_ERROR:
.SECONDARY:
all: $(PLUGIN) $(HOSTLIB) $(FRONT) $(BENCH) $(TOPO)
	@$(if $(NVCC),true,echo "$(if $(filter 0,$(CUDA)),CUDA=0,no nvcc found): built for the host alone")

# ---------------------------------------------------------------- rules
$(B)/kind:
	@mkdir -p $(@D)
	@echo "$(KIND)" > $@

# The flags that objects were built with: with other flags they are built again. -Werror changes no object, so that a
# folder which was built with it stays as it is without it.
FLAGS_c    := $(CC) $(C_FLAGS)
FLAGS_nvcc := $(NVCC) $(NVCC_FLAGS)
FLAGS_emu   = $(CC) $(CXX) $(WARNINGS) $(EMU_FLAGS)
FLAGS_fuzz  = $(CLANG) $(FUZZ_FLAGS)
flags       = $(subst ','\'',$(strip $(filter-out -Werror all-warnings,$(FLAGS_$*))))
$(addprefix $(B)/flags/,c nvcc emu fuzz): $(B)/flags/%: FORCE
	@mkdir -p $(@D)
	@grep -qsxF -e '$(flags)$(if $(filter 1,$(WERROR)), -Werror)' -e '$(flags) -Werror' $@ || \
	  printf '%s\n' '$(flags)$(if $(filter 1,$(WERROR)), -Werror)' > $@
.PHONY: FORCE

$(B)/obj/%.c.o: %.c Makefile $(B)/flags/c | $(B)/kind
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@

# The list of NCCL's functions, as C and the assembler include it.
$(B)/gen/nccl_functions.h: plugin/nccl/functions.txt plugin/nccl/functions.sh
	@mkdir -p $(@D)
	$(Q)sh plugin/nccl/functions.sh generate > $@

$(B)/obj/plugin/nccl/%.o: C_FLAGS += -I$(B)/gen
$(filter $(B)/obj/plugin/nccl/%,$(FRONT_OBJECTS)): $(B)/gen/nccl_functions.h

$(B)/obj/%.S.o: %.S Makefile $(B)/flags/c | $(B)/kind
	$(call say,AS,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(C_FLAGS) -MMD -MP -c $< -o $@

$(B)/obj/%.cu.o: %.cu Makefile $(B)/flags/nvcc | $(B)/kind
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c $< -o $@

$(B)/libarfusion-internal.a: $(PLUGIN_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/libarfusion-bench.a: $(filter-out %/main.c.o,$(BENCH_OBJECTS)) $(call objects,plugin/host/plugin_choice.c)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/libarfusion-topo.a: $(filter-out %/main.c.o,$(TOPO_OBJECTS))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/libarfusion-topo-xml.a: $(TOPO_XML)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(PLUGIN): $(PLUGIN_OBJECTS) plugin/core/plugin.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -o $@ $(PLUGIN_OBJECTS) $(LD_FLAGS) -Wl,--version-script,plugin/core/plugin.map -Wl,-z,defs $(LIBS)
	$(Q)for name in $(NCCL_NAMES); do ln -sf $(@F) $(B)/$$name; done

$(B)/libarfusion.so.1: $(HOST_OBJECTS) $(B)/libarfusion-internal.a plugin/host/libarfusion.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -o $@ $(HOST_OBJECTS) $(B)/libarfusion-internal.a $(LD_FLAGS) -Wl,-soname,libarfusion.so.1 \
	  -Wl,-rpath,'$$ORIGIN' -Wl,--version-script,plugin/host/libarfusion.map -Wl,-z,defs $(LIBS)
	$(Q)ln -sf libarfusion.so.1 $(B)/libarfusion.so

$(FRONT): $(FRONT_OBJECTS) $(B)/libarfusion-internal.a plugin/nccl/libarfusion-nccl.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -o $@ $(FRONT_OBJECTS) $(B)/libarfusion-internal.a $(LD_FLAGS) -Wl,-soname,libarfusion-nccl.so \
	  -Wl,--version-script,plugin/nccl/libarfusion-nccl.map -Wl,-z,defs $(LIBS)

# Measurements say at which commit they were taken.
MEASURING := $(addprefix $(B)/obj/plugin/tools/bench/,perf_report.c.o tune.c.o)
$(MEASURING): DEFINES += -DARFUSION_COMMIT=\"$(shell git rev-parse --short=12 HEAD 2>/dev/null)\"
$(MEASURING): $(wildcard .git/logs/HEAD)

# What lies beside a tool or a library goes before what is installed elsewhere.
BESIDE := -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib'

$(B)/arfusion-bench: $(BENCH_OBJECTS) $(BENCH_LOADER) $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) $(BESIDE) $(BENCH_LIBS) $(LIBS)

$(B)/arfusion-topo: $(TOPO_OBJECTS) $(B)/libarfusion-topo-xml.a $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) $(TOPO_LIBS) $(LIBS)

$(B)/test/unit/%: $(B)/obj/test/unit/%.c.o $(SUPPORT) $(HOST_OBJECTS) $(B)/libarfusion-bench.a $(B)/libarfusion-topo.a \
    $(B)/libarfusion-topo-xml.a $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) -lcmocka $(BENCH_LIBS) $(TOPO_XML_LIBS) $(LIBS)

$(B)/test/gpu/%: $(B)/obj/test/gpu/%.c.o $(GPU_SUPPORT) $(HOST_OBJECTS) $(B)/libarfusion-bench.a \
    $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) -Wl,-rpath,'$$ORIGIN/../..' $(LIBS)

$(HOSTS): $(B)/obj/test/gpu/hosts/hosts.c.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $^ $(LD_FLAGS) -ldl

$(MOCK_NCCL): $(call objects,$(call sources,test/nccl/mock) plugin/tools/bench/number.c) test/nccl/mock/mock.map
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $(filter %.o,$^) $(LD_FLAGS) -Wl,-soname,libnccl.so.2 \
	  -Wl,--version-script,test/nccl/mock/mock.map \
	  -Wl,-z,defs -lm

$(MOCK_PLUGIN): $(B)/obj/test/nccl/stream_plugin.c.o $(MOCK_NCCL) | $(PLUGIN)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -o $@ $^ $(LD_FLAGS) -Wl,-rpath,'$$ORIGIN'

$(B)/test/nccl/%: $(B)/obj/test/nccl/%.c.o $(NCCL_SUPPORT) $(FRONT) $(MOCK_NCCL) $(MOCK_PLUGIN)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $(filter-out $(MOCK_PLUGIN),$^) $(LD_FLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../..' -lcmocka -ldl -lm

# The CUDA kernels as C++ on emulated GPUs: test/emu stands in front of CUDA's header and of
# kernels/cuda/device_ops.cuh.
EMU_FLAGS = $(CFLAGS) $(if $(filter 1,$(DEBUG)),-O0 -g3) $(SANITIZE) -Itest/emu -I. -Iinclude -ffp-contract=off \
            -fno-strict-aliasing
$(B)/emu/%.c.o: %.c Makefile $(B)/flags/emu
	$(call say,EMU,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(WARNINGS) $(EMU_FLAGS) -MMD -MP -c $< -o $@

$(B)/emu/%.cu.o: %.cu Makefile $(B)/flags/emu
	$(call say,EMU,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -fno-exceptions $(filter-out %-prototypes,$(WARNINGS)) $(EMU_FLAGS) -MMD -MP -x c++ -c $< -o $@

$(B)/test/emu/test_emu_kernels: $(EMU_OBJECTS)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -o $@ $^ $(LD_FLAGS) -lm

$(B)/obj/test/bench/mpi_baseline.c.o: CC := $(MPICC)
$(B)/test/bench/mpi_baseline: CC := $(MPICC)
$(B)/test/bench/%: $(B)/obj/test/bench/%.c.o $(BENCH_LOADER) $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) -Wl,-rpath,'$$ORIGIN/../..' $(LIBS)

programs: all docs $(UNIT) $(NCCLTEST) $(EMU) $(GPU) $(HOSTS)
bench: all $(BENCHES)

# ---------------------------------------------------------------- goals
demo: all
	@$(B)/arfusion-bench demo

test: programs
	@B=$(B) CUDA=$(if $(NVCC),1,0) SANITIZED=$(VARIANT) CC="$(CC)" PYTHON="$(PYTHON)" bash test/run.sh $(UNIT) \
	  $(NCCLTEST) $(EMU) $(wildcard test/cli/*.sh)

test-gpu: all $(GPU)
	@B=$(B) bash test/run.sh $(GPUTEST)

test-torch: all
	@B=$(B) PYTHON="$(PYTHON)" CUDA_HOME="$(CUDA_HOME)" bash test/python/with_torch.sh

SECONDS ?= 60
test-emu: $(EMU)
	$(EMU) $(SECONDS)

MODELS := $(filter-out %/operations.pml,$(wildcard test/model/*.pml))
test-model:
	@CC="$(CC)" B=$(B)/model bash test/model/run.sh $(MODELS)

test-mutations:
	@MAKE="$(MAKE)" B=$(B)/mutations bash test/mutations/run.sh $(wildcard test/mutations/*.patch)

# Everything instrumented, and nothing of CUDA: the sources again, by clang.
CLANG        ?= clang
FUZZ_SECONDS ?= 60
FUZZERS      := $(patsubst test/fuzz/%.c,$(B)/fuzz/%,$(wildcard test/fuzz/*.c))
FUZZED       := $(patsubst %,$(B)/fuzz/%.o,$(filter-out %_cuda.c %/main.c,$(wildcard \
                  $(addsuffix /*.c,topo topo/xml kernels/host plugin/core plugin/tools/bench))))
FUZZ_FLAGS   := -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined

$(B)/fuzz/%.c.o: %.c Makefile $(B)/flags/fuzz
	$(call say,CLANG,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG) -std=c11 -D_GNU_SOURCE $(FUZZ_FLAGS) -DARFUSION_VERSION=\"$(VERSION)\" -I. -Iinclude \
	  -ffp-contract=off -fno-strict-aliasing \
	  -MMD -MP -c $< -o $@

$(B)/fuzz/libfuzzed.a: $(FUZZED)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/fuzz/%: $(B)/fuzz/test/fuzz/%.c.o $(B)/fuzz/libfuzzed.a
	$(call say,LINK,$@)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(TOPO_XML_LIBS) $(BENCH_LIBS) -ldl -lm -pthread

# Corpora that grow are kept in the build folder; test/fuzz/corpus has what each began with and what once broke a
# reader.
fuzz: $(FUZZERS)
	@B=$(B)/fuzz SECONDS_EACH=$(FUZZ_SECONDS) bash test/fuzz/run.sh $(FUZZERS)

test-long:
	@MAKE="$(MAKE)" bash test/long.sh

resources:
	$(if $(NVCC),,$(error make resources needs nvcc))
	@status=0; for f in $(wildcard kernels/cuda/*.cu); do \
	  $(NVCC) $(NVCC_FLAGS) -Xptxas -v -c $$f -o /dev/null 2>&1 | sh test/gpu/resources.sh || status=1; done; exit $$status

include plugin/packaging/install.mk

clean:
	rm -rf build $(BUILDDIR)

-include $(shell find $(B)/obj $(B)/emu $(B)/fuzz -name '*.d' 2>/dev/null)
endif
