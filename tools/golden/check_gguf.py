#!/usr/bin/env python3
"""Checks `strata checkpoint export` against llama.cpp, family by family.

    python3 tools/golden/check_gguf.py build/release/bin/strata path/to/llama.cpp [--llama MODULES] [DIR ...]

Checks a small random model with its own byte-level BPE for each family that GGUF supports, or the given DIRs, such as
`final/` of a run:
- llama.cpp's converter reads the output of `strata checkpoint export` and writes the same tensors and metadata as
  `--format gguf`; EXPECTED below lists intended differences;
- llama.cpp loads the GGUF file, tokenizes texts like the model's tokenizer, and continues a prompt with the tokens
  of `strata generate --temperature 0`.

The second needs the Python package llama-cpp-python (its folder may be given as MODULES, and the folder of libllama.so as
$LLAMA_CPP_LIB_PATH). Needs torch, transformers, tokenizers and gguf. Not part of the tests, which need no Python.
"""
import argparse
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

TEXTS = ["The", " and then", "It's 2026, isn't it?\n\n  Yes: 1234567 (or so)…", "naïve café über 東京 🙂", "a  b\t c\r\n d ", "x" * 40]
NEW_TOKENS = 24

# Intended differences and their reasons: metadata keys without the architecture's prefix.
EXPECTED = {
    "general.name": "the converter derives the name from the folder",
    "general.size_label": "for display", "general.license": "for display", "general.tags": "for display",
    "general.languages": "for display", "general.datasets": "for display", "general.base_model.count": "for display",
    "general.basename": "for display", "general.version": "for display", "nextn_predict_layers": "0 for none",
    "general.sampling": "defaults of llama-cli", "general.sampling.temp": "defaults of llama-cli",
    "vocab_size": "repeats the length of the token list",
    "tokenizer.ggml.padding_token_id": "llama.cpp does not pad",
    "tokenizer.ggml.add_bos_token": "strata always writes it", "tokenizer.ggml.add_eos_token": "strata always writes it",
    "tokenizer.ggml.add_space_prefix": "strata always writes it", "tokenizer.ggml.unknown_token_id": "strata always writes it",
    "rope.scaling.yarn_attn_factor": "llama.cpp reads it only for Grok", "rope.scaling.yarn_beta_fast": "read only for Grok and Mistral 3",
    "rope.scaling.yarn_beta_slow": "read only for Grok and Mistral 3",
    "rope.scaling.attn_factor": "of LongRoPE, which the converter writes only for Phi-3",
    "rope.scaling.original_context_length": "of LongRoPE, which the converter writes only for Phi-3",
    "rope.freq_base": "the converter omits Gemma 2's, which is llama.cpp's default",
    "attention.key_length": "the head size, even if it is width / heads", "attention.value_length": "likewise",
    "general.file_type": "for display; the converter omits it for GPT-NeoX",
    "attention.sliding_window_pattern": "for Gemma 3 only strata writes it, if it is unusual",
    "attention.sliding_window": "llama.cpp's Phi-3 ignores it; the converter writes 0 for none",
}


# Files of tests/data/tokenizer/kinds with the same tokens in two forms.
SENTENCEPIECE = {"llama2_legacy": "spm_bpe_bytes.model", "t5": "spm_unigram_rules.model"}


def export(program, source, target, *options):
    subprocess.run([program, "checkpoint", "export", source, target, "--dtype", "fp32", *options], check=True, capture_output=True)
    return target


def generate(program, folder, prompt):
    out = subprocess.run([program, "generate", "--model", folder, "--prompt", prompt, "--temperature", "0", "--max-tokens",
                          str(NEW_TOKENS), "--set", "precision.compute=fp32", "--json"], check=True, capture_output=True)
    return json.loads(out.stdout.splitlines()[0])["ids"]


# The converter identifies the splits of published tokenizers by a hash of their ids; those of our tokenizer are passed in.
CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
folder, out, pre = sys.argv[2:]
import convert_hf_to_gguf as convert
from conversion.base import TextModel
theirs = TextModel.get_vocab_base_pre
def known(self, tokenizer):
    try:
        return theirs(self, tokenizer)
    except NotImplementedError:
        return pre
TextModel.get_vocab_base_pre = known
# It accepts Gemma 2 and Phi-3 only with a SentencePiece model, although they may have other tokenizer files.
from conversion.gemma import Gemma2Model
from conversion.phi import Phi3MiniModel
import pathlib
# For GLM it needs four tokens that only the published vocabulary has.
TextModel._set_vocab_glm = TextModel._set_vocab_gpt2
# For DeepSeek-V3.2 it needs a tokenizer that puts a token before the text.
try:
    from conversion.deepseek import DeepseekV32Model
    DeepseekV32Model.set_vocab = TextModel._set_vocab_gpt2
except ImportError:  # an older converter
    pass
# Of these families it expects layers that predict further tokens, unless told otherwise.
try:
    from conversion.qwen import _QwenMtpMixin
    _QwenMtpMixin.no_mtp = True
except ImportError:
    pass
if not (pathlib.Path(folder) / "tokenizer.model").exists():
    Gemma2Model.set_vocab = Phi3MiniModel.set_vocab = TextModel._set_vocab_gpt2
# transformers 5 drops keys of config.json that the converter needs (rotary_pct).
from conversion.base import ModelBase
import json
load = ModelBase.load_hparams
def hparams(where, is_mistral_format):
    found = {**json.loads((pathlib.Path(where) / "config.json").read_text()), **load(where, is_mistral_format)}
    if found.get("model_type") == "minimax_m2":  # published files have these keys
        found.setdefault("scoring_func", "sigmoid")
        found.setdefault("rotary_dim", int(found["head_dim"] * found["rope_parameters"]["partial_rotary_factor"]))
    if found.get("model_type") == "nemotron_h" and "num_experts_per_tok" not in json.loads((pathlib.Path(where) / "config.json").read_text()):
        # transformers' defaults, which make a mixture of Nemotron-H
        for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group"):
            found.pop(key, None)
    if found.get("model_type") == "kimi_linear":
        found.setdefault("moe_router_activation_func", "sigmoid")
    return found
ModelBase.load_hparams = staticmethod(hparams)
sys.argv = ["convert_hf_to_gguf.py", folder, "--outtype", "f32", "--outfile", out]
convert.main()
"""


def convert(llama_cpp, folder, out, pre):
    done = subprocess.run([sys.executable, "-c", CONVERT, llama_cpp, folder, out, pre], capture_output=True, text=True)
    assert done.returncode == 0, "the converter fails: " + done.stderr[-1500:]


def contents(path):
    import gguf
    reader = gguf.GGUFReader(path)
    fields = {f.name: f.contents() for f in reader.fields.values() if not f.name.startswith("GGUF.")}
    return fields, {t.name: t.data for t in reader.tensors}


def compare(ours, theirs):
    """Lines that describe the differences."""
    (a, x), (b, y) = contents(ours), contents(theirs)
    arch = a["general.architecture"] + "."
    for key in sorted(a.keys() | b.keys()):
        name = key.removeprefix(arch)
        if name in EXPECTED and not (key in a and key in b and ("tokenizer" in key or "rope" in key)):
            continue
        if key not in a or key not in b:
            yield f"{key} only in {'ours' if key in a else 'theirs'}: {str(a.get(key, b.get(key)))[:60]}"
        elif name == "tokenizer.ggml.scores":  # only of tokens in the text; the others have none
            kinds = a["tokenizer.ggml.token_type"]
            if any(p != q for p, q, kind in zip(a[key], b[key], kinds) if kind == 1):
                yield f"{key} of normal tokens"
        elif a[key] != b[key]:
            yield f"{key}: ours {str(a[key])[:60]}, theirs {str(b[key])[:60]}"
    # LongRoPE's factors, which the converter writes only for Phi-3.
    for name in sorted(name for name in x.keys() | y.keys() if not (name.startswith("rope_factors") and name not in y)):
        if name not in x or name not in y:
            yield f"tensor {name} only in {'ours' if name in x else 'theirs'}"
        elif x[name].shape != y[name].shape or not np.allclose(x[name], y[name], rtol=1e-6, atol=0):
            yield f"tensor {name}: shapes {x[name].shape} and {y[name].shape}, or other values"


class Llama:
    """llama.cpp through its C API, everything in fp32."""

    def __init__(self, path):
        import llama_cpp
        self.c = llama_cpp
        errors = []
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: errors.append(text.decode().strip()) if level >= 4 else None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        assert self.model, "llama.cpp does not load the file: " + " ".join(errors[:1])
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def ids(self, text, special):
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 8))()
        n = self.c.llama_tokenize(self.vocab, data, len(data), room, len(room), special, False)
        return list(room[:n])

    def begin(self):
        """An empty text."""
        params = self.c.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 128, 128, 128, 1, 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        self.context = self.c.llama_init_from_model(self.model, params)

    def logits(self, ids):
        """The logits after appending these tokens to the text."""
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        assert self.c.llama_decode(self.context, self.c.llama_batch_get_one(tokens, len(ids))) == 0
        return np.ctypeslib.as_array(self.c.llama_get_logits(self.context), (self.size,)).copy()


def run_in_llama(program, folder, path):
    """Compares token ids of texts and the greedy continuation; returns lines that describe the differences."""
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), clean_up_tokenization_spaces=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    llama = Llama(path)
    for text in TEXTS:
        for special in (False, True):
            wanted = tokenizer(text, add_special_tokens=special)["input_ids"]
            found = llama.ids(text, special)
            if wanted != found:
                yield f"ids of {text!r} (special {special}): {found}, wanted {wanted}"
    apart = 0.0
    for prompt in TEXTS[:2]:
        ids = tokenizer(prompt, add_special_tokens=True)["input_ids"]
        llama.begin()
        new = ids
        for step, id in enumerate(generate(program, folder, prompt)):
            logits = llama.logits(new)
            with torch.no_grad():
                wanted = model(torch.tensor([ids])).logits[0, -1].numpy()
            apart = max(apart, float(np.abs(logits[:len(wanted)] - wanted).max()))
            if int(logits.argmax()) != id:
                yield (f"token {step} after {prompt!r}: {int(logits.argmax())}, strata {id}, transformers {int(wanted.argmax())}, "
                       f"logits {float(logits.max() - logits[id]):.2g} apart")
                break
            new = [id]
            ids = ids + new
    yield f"+logits at most {apart:.1e} from transformers'"


def small_models(program, scratch, only):
    """Writes a folder per family, with sizes that llama.cpp supports."""
    import torch
    import transformers as t
    from transformers import AutoModelForCausalLM
    data = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "tokenizer"
    corpus, kinds_of_tokenizers = data / "golden" / "corpus.txt", data / "kinds"
    vocab = scratch / "tokenizer.json"
    subprocess.run([program, "tokenizer", "train", "--input", corpus, "--vocab-size", "384", "--special", "<|endoftext|>",
                    "--output", vocab], check=True, capture_output=True)
    shared = dict(vocab_size=384, bos_token_id=None, eos_token_id=0, pad_token_id=None, initializer_range=0.2)
    base = dict(shared, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=128, tie_word_embeddings=False)
    llama3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=16)
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32)
    longrope = dict(rope_type="longrope", rope_theta=1e4, long_factor=[1.0 + i / 3 for i in range(8)],
                    short_factor=[1.0 + i / 9 for i in range(8)], original_max_position_embeddings=256)
    # llama.cpp selects short or long factors by its context size, which is at least 256.
    longer = dict(base, max_position_embeddings=512)
    gemma = dict(base, head_dim=32, query_pre_attn_scalar=32, hidden_activation="gelu_pytorch_tanh", sliding_window=8,
                 tie_word_embeddings=True)
    latent = dict(base, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16,
                  n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=40, n_shared_experts=2, first_k_dense_replace=1)
    delta = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
                 layer_types=["linear_attention", "full_attention", "linear_attention"])
    granite = dict(mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, mamba_expand=2, attention_multiplier=0.3,
                   embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.6, shared_intermediate_size=72,
                   layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope")
    nemotron = dict(head_dim=16, mamba_num_heads=8, mamba_head_dim=16, n_groups=2, ssm_state_size=16, n_routed_experts=6,
                    num_experts_per_tok=2, moe_intermediate_size=40, moe_shared_expert_intermediate_size=72, n_group=1, topk_group=1)
    routed = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40, shared_expert_intermediate_size=72)
    indexer = dict(index_n_heads=8, index_head_dim=64, index_topk=16)
    kinds = {
        "llama": t.LlamaConfig(**dict(base, tie_word_embeddings=True)),
        "llama3": t.LlamaConfig(**base, rope_parameters=llama3),
        "llama-biases-yarn": t.LlamaConfig(**base, rope_parameters=yarn, attention_bias=True, mlp_bias=True),
        "llama-linear": t.LlamaConfig(**base, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
        "llama-longrope": t.LlamaConfig(**longer, rope_parameters=longrope),
        "mistral": t.MistralConfig(**base, head_dim=16, sliding_window=None),
        "qwen2": t.Qwen2Config(**base), "qwen3": t.Qwen3Config(**base, head_dim=32),
        "olmo": t.OlmoConfig(**base, clip_qkv=0.5), "olmo2": t.Olmo2Config(**base),
        "gemma2": t.Gemma2Config(**gemma),
        "gemma3": t.Gemma3TextConfig(**dict(gemma, num_hidden_layers=7)),
        "gemma3-pattern": t.Gemma3TextConfig(**dict(gemma, num_hidden_layers=4), layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=2.0),
                                 sliding_attention=dict(rope_type="default", rope_theta=5e3))),
        # With "phi3" in the name, llama.cpp looks for tokens that only Microsoft's vocabulary has.
        "phi": t.Phi3Config(**base), "phi-longrope": t.Phi3Config(**longer, original_max_position_embeddings=256,
                                                                    rope_parameters=dict(longrope, partial_rotary_factor=1.0)),
        "gpt-neox": t.GPTNeoXConfig(**{k: v for k, v in base.items() if k != "num_key_value_heads"}, rotary_pct=0.5),
        "starcoder2": t.Starcoder2Config(**dict(base, tie_word_embeddings=True), sliding_window=None),
        "stablelm": t.StableLmConfig(**base, use_qkv_bias=True),
        # Vocabularies of 600 and 308 tokens: strata does not write ids without a token.
        "llama-sentencepiece": t.LlamaConfig(**dict(base, vocab_size=600, bos_token_id=1, eos_token_id=2)),
        "llama-unigram": t.LlamaConfig(**dict(base, vocab_size=308, eos_token_id=2)),
        "gpt2": t.GPT2Config(**shared, n_embd=64, n_layer=3, n_head=4, n_positions=128),
        "mixtral": t.MixtralConfig(**base, num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
        "olmoe": t.OlmoeConfig(**dict(base, num_key_value_heads=4), num_experts=6, num_experts_per_tok=2, norm_topk_prob=False),
        "qwen2-moe": t.Qwen2MoeConfig(**base, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=False,
                                      shared_expert_intermediate_size=72),
        "qwen3-moe": t.Qwen3MoeConfig(**base, head_dim=32, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40,
                                      norm_topk_prob=True),
        # llama.cpp determines from the number of layers whether queries are latent.
        "deepseek-v2-lite": t.DeepseekV2Config(**dict(latent, num_hidden_layers=27), q_lora_rank=None, topk_method="greedy", n_group=None, topk_group=None,
                                          routed_scaling_factor=1.0, norm_topk_prob=False),
        "deepseek-v2-yarn": t.DeepseekV2Config(**latent, q_lora_rank=24, topk_method="greedy", n_group=None, topk_group=None,
                                               routed_scaling_factor=2.0, norm_topk_prob=False, rope_parameters=dict(
                                                   yarn, beta_fast=32, beta_slow=1, mscale=0.7, mscale_all_dim=0.7)),
        "moonlight": t.DeepseekV3Config(**dict(latent, num_hidden_layers=27), q_lora_rank=None, n_group=1, topk_group=1,
                                        routed_scaling_factor=2.446, num_nextn_predict_layers=0),
        "deepseek-v3": t.DeepseekV3Config(**latent, q_lora_rank=24, n_group=4, topk_group=2, routed_scaling_factor=2.5,
                                          num_nextn_predict_layers=0),
        "deepseek-v3-yarn": t.DeepseekV3Config(**latent, q_lora_rank=24, n_group=1, topk_group=1, routed_scaling_factor=2.5,
                                               num_nextn_predict_layers=0, rope_parameters=dict(
                                                   yarn, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
        # Sparse attention. llama.cpp multiplies the indexers' vectors by a Hadamard matrix, so their size is a power of two.
        "deepseek-v32": t.DeepseekV32Config(**latent, **indexer, q_lora_rank=24, n_group=4, topk_group=2, routed_scaling_factor=2.5),
        "deepseek-v32-yarn": t.DeepseekV32Config(**latent, **indexer, q_lora_rank=24, n_group=1, topk_group=1,
                                                 routed_scaling_factor=2.5, rope_parameters=dict(
                                                     yarn, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
        "glm-5": t.GlmMoeDsaConfig(**latent, **indexer, q_lora_rank=24, n_group=1, topk_group=1, routed_scaling_factor=2.5),
        "glm-5.2": t.GlmMoeDsaConfig(**latent, **indexer, q_lora_rank=24, n_group=1, topk_group=1, routed_scaling_factor=2.5,
                                     indexer_types=["full", "shared", "full"]),
        "glm4-moe": t.Glm4MoeConfig(**base, head_dim=32, n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1,
                                    moe_intermediate_size=40, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.5,
                                    use_qk_norm=True, attention_bias=True, num_nextn_predict_layers=0),
        "gpt-oss": t.GptOssConfig(**base, head_dim=32, num_local_experts=6, num_experts_per_tok=2, sliding_window=8,
                                  layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                  rope_parameters=dict(yarn, beta_fast=32, beta_slow=1)),
        "olmo3": t.Olmo3Config(**dict(base, num_hidden_layers=4), sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2),
        # llama.cpp gives no position to every fourth layer.
        "smollm3": t.SmolLM3Config(**dict(base, num_hidden_layers=4), no_rope_layers=[1, 1, 1, 0], layer_types=["full_attention"] * 4),
        "minimax-m2": t.MiniMaxM2Config(**base, head_dim=32, num_local_experts=6, num_experts_per_tok=2,
                                        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)),
        "qwen3-next": t.Qwen3NextConfig(**base, **delta, **routed, head_dim=32),
        "qwen3.5": t.Qwen3_5TextConfig(**base, **delta, head_dim=32),
        "qwen3.5-moe": t.Qwen3_5MoeTextConfig(**base, **delta, **routed, head_dim=32),
        "mamba2": t.Mamba2Config(**shared, hidden_size=64, num_hidden_layers=3, num_heads=8, head_dim=16, state_size=16, n_groups=2,
                                 expand=2, tie_word_embeddings=False),
        "falcon-h1": t.FalconH1Config(**base, head_dim=16, mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2,
                                      mamba_d_state=16, mamba_rms_norm=True, mamba_norm_before_gate=False, key_multiplier=0.6,
                                      ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], ssm_in_multiplier=1.3, ssm_out_multiplier=0.8,
                                      attention_in_multiplier=1.2, attention_out_multiplier=0.9, embedding_multiplier=2.0,
                                      lm_head_multiplier=0.7, mlp_multipliers=[0.9, 1.2]),
        "granite-hybrid": t.GraniteMoeHybridConfig(**base, **granite, num_local_experts=6, num_experts_per_tok=2),
        "granite-hybrid-dense": t.GraniteMoeHybridConfig(**base, **granite, num_local_experts=0, num_experts_per_tok=0),
        "nemotron-h": t.NemotronHConfig(**dict(base, intermediate_size=96), **nemotron, layers_block_type=["mamba", "attention", "mamba", "moe"]),
        "nemotron-h-dense": t.NemotronHConfig(**dict(base, intermediate_size=96), **nemotron, layers_block_type=["mamba", "attention", "mamba", "mlp"]),
        "nemotron-h-latent": t.NemotronHConfig(**base, **nemotron, layers_block_type=["mamba", "attention", "mamba", "moe"], moe_latent_size=32),
        "kimi-linear": t.KimiLinearConfig(**dict(base, num_key_value_heads=4), kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16,
                                          v_head_dim=16, linear_num_heads=4, linear_head_dim=16, num_experts=6, num_experts_per_token=2,
                                          moe_intermediate_size=40, num_expert_group=1, topk_group=1, num_shared_experts=1,
                                          layer_types=["linear_attention", "full_attention", "linear_attention"],
                                          mlp_layer_types=["dense", "sparse", "sparse"]),
        "lfm2-moe": t.Lfm2MoeConfig(**dict(base, tie_word_embeddings=True), num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, num_dense_layers=1,
                                    layer_types=["conv", "full_attention", "conv"], use_expert_bias=True),
        "llama4": t.Llama4TextConfig(**dict(base, num_hidden_layers=4), head_dim=16, num_local_experts=6, num_experts_per_tok=1,
                                     intermediate_size_mlp=96, interleave_moe_layer_step=2, rope_parameters=dict(llama3)),
    }
    for name, config in kinds.items():
        if only and name not in only:
            continue
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if value.dim() == 1 or key.endswith("_bias"):
                    value += torch.randn_like(value) * 0.1
            for key, value in model.named_buffers():
                if key.endswith("e_score_correction_bias"):
                    value += torch.randn_like(value) * 0.1
        folder = scratch / name
        model.save_pretrained(folder)
        of_kind = {"llama-sentencepiece": "llama2_legacy", "llama-unigram": "t5"}.get(name)
        (folder / "tokenizer.json").write_text((kinds_of_tokenizers / f"{of_kind}.json" if of_kind else vocab).read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>" if of_kind else "<|endoftext|>"}))
        if of_kind:  # the converter reads the SentencePiece file
            shutil.copy(kinds_of_tokenizers / SENTENCEPIECE[of_kind], folder / "tokenizer.model")
        yield folder


def check(options, folder, scratch):
    notes, errors_found = [], []
    where = scratch / (folder.name + "-out")
    try:
        hf = export(options.program, folder, where / folder.name)
        ours = export(options.program, folder, where / "ours.gguf", "--format", "gguf")
    except subprocess.CalledProcessError as error:
        print(f"{folder.name}: NOT EXPORTED: {error.stderr.decode().strip()[-300:]}", flush=True)
        return False
    try:
        theirs = where / "theirs.gguf"
        convert(options.llama_cpp, hf, theirs, contents(ours)[0].get("tokenizer.ggml.pre", "default"))
        errors_found += compare(ours, theirs)
    except AssertionError as error:
        errors_found.append(str(error))
    if options.converter_only:
        notes.append("not run")
    else:
        try:
            said = list(run_in_llama(options.program, hf, ours))
            notes += [line[1:] for line in said if line[0] == "+"]
            errors_found += [line for line in said if line[0] != "+"]
        except AssertionError as error:
            errors_found.append(str(error))
    print(f"{folder.name}: {', '.join(notes)}{'' if errors_found else ', same as the converter'}", *errors_found, sep="\n    ", flush=True)
    return not errors_found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("llama_cpp", help="the source tree with convert_hf_to_gguf.py")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--llama", help="a folder to import llama_cpp from")
    parser.add_argument("--converter-only", action="store_true")
    parser.add_argument("--only", nargs="+", help="of the small models, those of these names")
    options = parser.parse_intermixed_args()
    if options.llama:
        sys.path.insert(0, options.llama)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folders = options.folders or small_models(options.program, scratch, options.only)
        # Check all families even if one fails.
        good = [check(options, folder, scratch) for folder in folders]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
