# SPDX-License-Identifier: Apache-2.0
# vLLM, as it is: its fusion pass finds allreduce + add + RMSNorm, and calls flashinfer.comm, which PYTHONPATH makes
# arfusion's, in the workers too. Needs `pip install arfusion` (make wheel), vLLM with its FlashInfer, and two GPUs.
#
#   bash vllm.sh meta-llama/Llama-3.1-8B-Instruct
set -eu
compat=$(python3 -c 'import arfusion.compat; print(*arfusion.compat.__path__)')
PYTHONPATH=$compat${PYTHONPATH:+:$PYTHONPATH} exec vllm serve "${1:?which model}" --tensor-parallel-size 2 \
  --compilation-config '{"pass_config": {"fuse_allreduce_rms": true}}'
