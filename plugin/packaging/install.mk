# SPDX-License-Identifier: Apache-2.0
# install.mk: man pages, completions, installation, tarball, Debian packages and Python's wheel; part of the Makefile.

DOCS := $(addprefix $(B)/man/,arfusion.7 arfusion-bench.1 arfusion-topo.1) \
        $(addprefix $(B)/completions/,arfusion-bench arfusion-topo)

.PHONY: docs readme install tarball deb wheel test-install

# Prints, as roff or as Markdown, what the code knows: settings, reasons, what is supported.
$(B)/doc_tables: $(call objects,plugin/packaging/doc_tables.c) $(B)/libarfusion-internal.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LD_FLAGS) $(LIBS)

$(B)/man/arfusion.7: plugin/packaging/arfusion.7.in $(B)/doc_tables
	$(call say,MAN,$@)
	@mkdir -p $(@D)
	$(Q)VERSION=$(VERSION) sh plugin/packaging/fill.sh $< $(B)/doc_tables roff > $@

$(B)/man/%.1: $(B)/% plugin/packaging/man.sh plugin/packaging/man.awk
	$(call say,MAN,$@)
	@mkdir -p $(@D)
	$(Q)VERSION=$(VERSION) sh plugin/packaging/man.sh $< > $@

$(B)/completions/%: $(B)/% plugin/packaging/completion.sh
	$(call say,BASH,$@)
	@mkdir -p $(@D)
	$(Q)sh plugin/packaging/completion.sh $< > $@

docs: $(DOCS)

# The tables in README.md, again from the code.
readme: $(B)/doc_tables
	$(Q)sh plugin/packaging/fill.sh README.md $(B)/doc_tables markdown > $(B)/README.md
	$(Q)cp $(B)/README.md README.md

INSTALL = B=$(B) VERSION=$(VERSION) sh plugin/packaging/install.sh

install: all docs
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" $(INSTALL)

# Runs from wherever it is unpacked.
RELEASE := arfusion-$(VERSION)-linux-$(shell uname -m)
tarball: all docs
	@rm -rf $(B)/tarball && mkdir -p $(B)/tarball
	@DESTDIR=$(B)/tarball PREFIX=/$(RELEASE) LIBDIR=/$(RELEASE)/lib RELOCATABLE=1 $(INSTALL)
	@cp LICENSE README.md plugin/packaging/debian/copyright $(B)/tarball/$(RELEASE)
	@tar -C $(B)/tarball --sort=name --owner=0 --group=0 --numeric-owner -czf $(B)/$(RELEASE).tar.gz $(RELEASE)
	@echo "$(B)/$(RELEASE).tar.gz"

# Built in a copy of its own, with Debian's flags.
deb:
	@B=$(B) VERSION=$(VERSION) CUDA=$(if $(NVCC),1,0) CUDA_HOME="$(CUDA_HOME)" NCCL_HOME="$(NCCL_HOME)" \
	  NVCC_GENCODE="$(NVCC_GENCODE)" sh plugin/packaging/deb.sh

# The Python package with the shared objects in it.
wheel: all
	@B=$(B) VERSION=$(VERSION) PYTHON="$(PYTHON)" sh plugin/packaging/wheel.sh

# As root, with a Debian mirror: minutes, most of them for a system to install into.
test-install: all docs
	@B=$(B) bash test/run.sh $(wildcard test/install/*.sh)
