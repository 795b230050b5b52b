# SPDX-License-Identifier: Apache-2.0
# make deps does nothing, and needs no network, when all is there; as an ordinary user without sudo it says what to
# type.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/dpkg-query" <<'END'
#!/bin/sh
case $3 in libmd-dev) [ -z "${LACKING:-}" ] || exit 1 ;; esac
echo installed
END
printf '#!/bin/sh\necho "apt-get must not run" >&2; exit 9\n' >"$scratch/apt-get"
printf '#!/bin/sh\necho 1000\n' >"$scratch/id"
chmod +x "$scratch"/*
for tool in sh echo; do ln -s "$(command -v $tool)" "$scratch"; done
[ "$(PATH=$scratch sh plugin/packaging/deps.sh)" = "make deps: everything is there" ]
status=0
said=$(LACKING=1 PATH=$scratch sh plugin/packaging/deps.sh 2>&1) || status=$?
[ $status = 1 ]
echo "$said" | grep -q 'apt-get install -y --no-install-recommends libmd-dev'
