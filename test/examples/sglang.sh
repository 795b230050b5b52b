# SPDX-License-Identifier: Apache-2.0
# SGLang, as it is: with this option it calls flashinfer.comm after each layer's halves, and PYTHONPATH makes that
# arfusion's, in the workers too. Needs `pip install arfusion` (make wheel), SGLang with its FlashInfer, and two GPUs.
#
#   bash sglang.sh meta-llama/Llama-3.1-8B-Instruct
set -eu
compat=$(python3 -c 'import arfusion.compat; print(*arfusion.compat.__path__)')
PYTHONPATH=$compat${PYTHONPATH:+:$PYTHONPATH} exec python3 -m sglang.launch_server --model-path "${1:?which model}" \
  --tensor-parallel-size 2 --enable-flashinfer-allreduce-fusion
