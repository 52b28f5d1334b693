#!/bin/bash
# bench/peers/setup.sh [data|experts]: creates a virtual environment with PyTorch in build/peers/venv, only for the comparisons
# in this folder. `data` adds the peers of the data pipeline (data_compare.py, datatrove_agreement.py), `experts` adds
# transformers (experts_compare.py). Needs the Debian packages python3-venv and python3-dev (torch.compile builds extensions).
# PyTorch's index has a build without GPU support: use PEERS_PIP_ARGS="--index-url URL".
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=build/peers/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
# shellcheck disable=SC2086
"$venv/bin/pip" install --quiet ${PEERS_PIP_ARGS:-} "torch==${PEERS_TORCH:-2.11.0}" numpy
if [ "${1:-}" = data ]; then
  "$venv/bin/pip" install --quiet "datatrove[io]==0.10.1" spacy==3.8.18 orjson xxhash tokenizers==0.23.3 tiktoken==0.14.0 \
    datasets pydivsufsort trafilatura==2.3.1 lxml_html_clean fasteners faust-cchardet warcio
  "$venv/bin/pip" install --quiet --no-deps megatron-core==0.16.1
fi
if [ "${1:-}" = experts ]; then "$venv/bin/pip" install --quiet transformers==5.23.0; fi
"$venv/bin/python" -c 'import torch; print("PyTorch", torch.__version__, "in build/peers/venv")'
