#!/usr/bin/env python3
"""Writes the golden model directories under tests/models/golden/.

Each directory is a small random model saved by transformers (config.json, model.safetensors in fp32), with sizes that are
not powers of two, a head size that is not d / heads, and three query heads per key-value head, and

  expected.safetensors   results of PyTorch and transformers, in fp32 with eager attention:
    tokens           int32 [2, 33]        inputs are the first 32 of each row, targets the last 32
    logits           fp32  [2, 32, V]
    loss             fp32  [1]            mean over the 64 targets
    grad/NAME        fp32                 gradient of that mean; NAME as in model.safetensors
    bf16/loss        fp32  [1]            the same batch in bf16 by transformers
    bf16/grad_distance/NAME  fp32 [1]     Euclidean distance of that tensor's gradient from the fp32 one
    adamw/tokens     int32 [30, 2, 33]    a fresh batch for each step, starting from the saved weights
    adamw/loss       fp32  [30]           before the update of that step
    adamw/grad_norm  fp32  [30]           before clipping
                     torch.optim.AdamW: lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on tensors with two
                     or more dimensions, gradients clipped to a global norm of 1
    document/tokens     int32 [2, 33]     several documents in a row; each ends with the end-of-text id 0
    document/positions  int32 [2, 32]     start at 0 in each document
    document/segments   int32 [2, 32]     number of the document in the row; attention stays inside it
    document/targets    int32 [2, 32]     -1 if the target is another document's first token: ignored
    document/logits     fp32  [2, 32, V]
    document/loss       fp32  [1]         mean over the remaining targets
    document/grad_norm/NAME  fp32 [1]     Euclidean norm of that tensor's gradient
    balanced/...     for models with experts, for the first batch: aux_loss, pooled over layers as in transformers;
                     grad/NAME of the loss plus router_aux_loss_coef times aux_loss; micro_batch and sequence: the sum
                     over layers of the balancing loss of all tokens, and of each sequence; global: with the counts of
                     the sequences so far; z_loss, summed over layers
    greedy/prompt    int32 [7]
    greedy/tokens    int32 [20]           the continuation by transformers' generate() at temperature 0

Needs torch, transformers and safetensors. Arguments select models by name; the same versions write the same files.
"""

import copy
import pathlib
import re
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

END_OF_TEXT = 0
BATCH, LENGTH = 2, 32
STEPS = 30


def llama(tied):
    # transformers needs a hidden size that is a multiple of the heads, although the head size is set separately.
    sizes = dict(hidden_size=42, num_attention_heads=6, num_key_value_heads=2, intermediate_size=50, num_hidden_layers=3)
    if tied:
        sizes = dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=1, intermediate_size=46, num_hidden_layers=2)
    config = LlamaConfig(
        vocab_size=131, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, attn_implementation="eager", **sizes)
    return LlamaForCausalLM(config)


def gpt2():
    config = GPT2Config(
        vocab_size=97, n_positions=64, n_embd=36, n_head=3, n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, attn_implementation="eager")
    return GPT2LMHeadModel(config)


def family(name, **settings):
    """A tiny model of a family with Llama's keys: three query heads per key-value head, an explicit head size."""
    sizes = dict(vocab_size=61, hidden_size=24, num_attention_heads=3, num_key_value_heads=1, intermediate_size=34,
                 num_hidden_layers=2, max_position_embeddings=64, bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT,
                 pad_token_id=None, attn_implementation="eager")
    config = getattr(transformers, name + "Config")(**(sizes | settings))
    return getattr(transformers, name.removesuffix("Text") + "ForCausalLM")(config)


def latent(name, **settings):
    """Latent attention: values narrower than the keys' plain part; no experts unless `settings` add them."""
    sizes = dict(num_key_value_heads=3, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8,
                 first_k_dense_replace=2)
    return family(name, **(sizes | settings))


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
DEEPSEEK_YARN = YARN | {"mscale": 0.7, "mscale_all_dim": 1.2}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.5, 2.5, 4.0], "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
          "original_max_position_embeddings": 16}
SLIDING = ["full_attention", "sliding_attention"]

# make_rope_golden.py has Llama's rope scalings. Windows are narrower than the sequences.
FAMILIES = {
    "llama-biases-yarn": lambda: family("Llama", head_dim=10, attention_bias=True, mlp_bias=True, rope_parameters=YARN),
    "mistral": lambda: family("Mistral", head_dim=10, sliding_window=7),
    "qwen2": lambda: family("Qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1,
                            layer_types=SLIDING, tie_word_embeddings=True),
    "qwen3": lambda: family("Qwen3", head_dim=10),
    "olmo": lambda: family("Olmo"),
    "olmo2": lambda: family("Olmo2"),
    "gemma2": lambda: family("Gemma2", head_dim=10, query_pre_attn_scalar=14, sliding_window=6,
                             attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3": lambda: family("Gemma3Text", head_dim=10, query_pre_attn_scalar=14, sliding_window=6,
                             num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                             final_logit_softcapping=None),
    "phi3": lambda: family("Phi3", rope_parameters=LONGROPE, max_position_embeddings=128,
                           original_max_position_embeddings=64),
    "gpt-neox": lambda: family("GPTNeoX", rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                           "partial_rotary_factor": 0.5}),
    "gpt-neox-serial": lambda: family("GPTNeoX", use_parallel_residual=False, hidden_act="gelu_new"),
    # Clips one in twenty of the projected q, k and v: at the limit, bf16 rounding switches gradients on and off.
    "olmo-clip": lambda: family("Olmo", clip_qkv=2.0),
    "starcoder2": lambda: family("Starcoder2", sliding_window=7),
    # Heads of 12: with 8, only four dimensions of k's bias rotate, too few for the rounding statistics.
    "stablelm": lambda: family("StableLm", hidden_size=36, use_qkv_bias=True, partial_rotary_factor=0.5),
    "deepseek-v3": lambda: latent("DeepseekV3", q_lora_rank=14, attention_bias=True, rms_norm_eps=1e-5, rope_parameters=DEEPSEEK_YARN,
                                  num_nextn_predict_layers=0),
    "deepseek-v3-half": lambda: latent("DeepseekV3", q_lora_rank=None, rope_interleave=False, num_nextn_predict_layers=0),
    "deepseek-v2": lambda: latent("DeepseekV2", q_lora_rank=None),
    "olmo3": lambda: family("Olmo3", sliding_window=6, num_hidden_layers=4, rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "smollm3": lambda: family("SmolLM3", num_hidden_layers=3, no_rope_layer_interval=2),
    # Layers without positions may have windows.
    "smollm3-windows": lambda: family("SmolLM3", num_hidden_layers=3, no_rope_layers=[0, 1, 0], use_sliding_window=True,
                                      sliding_window=6, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
}

# Families whose files store all experts of a layer in one tensor.
FUSED = ("gpt_oss", "llama4_text")

# Models with experts, some of which get more than the average number of tokens.
EXPERTS = {
    "mixtral": lambda: family("Mixtral", head_dim=10, num_local_experts=5, num_experts_per_tok=2, intermediate_size=18,
                              router_aux_loss_coef=0.02),
    "qwen2-moe": lambda: family("Qwen2Moe", num_experts=7, num_experts_per_tok=3, moe_intermediate_size=14,
                                shared_expert_intermediate_size=22, num_hidden_layers=3, mlp_only_layers=[1],
                                router_aux_loss_coef=0.01, norm_topk_prob=False),
    "qwen3-moe": lambda: family("Qwen3Moe", head_dim=10, num_experts=9, num_experts_per_tok=4, moe_intermediate_size=14,
                                norm_topk_prob=True, router_aux_loss_coef=0.01),
    "olmoe": lambda: family("Olmoe", num_experts=6, num_experts_per_tok=2, intermediate_size=14, clip_qkv=3.0,
                            router_aux_loss_coef=0.01),
    # One of two groups is kept, by the sum of its best two scores; the bias decides some cases.
    "glm4-moe": lambda: family("Glm4Moe", head_dim=12, n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1,
                               moe_intermediate_size=14, n_shared_experts=2, num_hidden_layers=3, first_k_dense_replace=1,
                               routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True, num_mtp_layers=0),
    "deepseek-v2-moe": lambda: latent("DeepseekV2", q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3,
                                      topk_method="group_limited_greedy", n_group=4, topk_group=2,
                                      moe_intermediate_size=14, n_shared_experts=2, num_hidden_layers=3,
                                      first_k_dense_replace=1, routed_scaling_factor=2.0),
    "deepseek-v3-moe": lambda: latent("DeepseekV3", q_lora_rank=14, n_routed_experts=8, num_experts_per_tok=3,
                                      n_group=2, topk_group=1, moe_intermediate_size=14, n_shared_experts=1,
                                      num_hidden_layers=3, first_k_dense_replace=1, routed_scaling_factor=2.5,
                                      num_mtp_layers=0),
    # A limit that clips some of the gate and up outputs.
    "gpt-oss": lambda: family("GptOss", head_dim=10, num_local_experts=5, num_experts_per_tok=2, intermediate_size=18,
                              sliding_window=6, swiglu_limit=0.9, router_aux_loss_coef=0.02,
                              rope_parameters=YARN | {"truncate": False}),
    # Three of four layers have rotary embedding and chunks; the temperature changes after 5, 10, ... tokens.
    "llama4": lambda: family("Llama4Text", head_dim=10, num_hidden_layers=4, num_local_experts=5, intermediate_size=18,
                             intermediate_size_mlp=34, interleave_moe_layer_step=2, attention_chunk_size=7,
                             floor_scale=5, attn_scale=0.4, rope_parameters=LLAMA3),
    "llama4-top2": lambda: family("Llama4Text", head_dim=10, num_local_experts=5, num_experts_per_tok=2,
                                  intermediate_size=18, no_rope_layers=[0, 1], use_qk_norm=False,
                                  attn_temperature_tuning=False, attention_chunk_size=9),
    "minimax-m2": lambda: family("MiniMaxM2", head_dim=12, num_local_experts=7, num_experts_per_tok=3, intermediate_size=14,
                                 rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                  "partial_rotary_factor": 0.5}),
}
# Models with recurrences. Key heads serve several value heads, keys and values differ in size where a family lets them.
GDN = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=10)
QWEN_HYBRID = GDN | dict(head_dim=16, num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"])
QWEN_EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=14, shared_expert_intermediate_size=18,
                    router_aux_loss_coef=0.01)


def mamba2():
    config = transformers.Mamba2Config(
        vocab_size=61, hidden_size=24, num_heads=6, head_dim=8, state_size=10, n_groups=2, num_hidden_layers=3, conv_kernel=3,
        chunk_size=16, tie_word_embeddings=True, bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, pad_token_id=None)
    return transformers.Mamba2ForCausalLM(config)


HYBRIDS = {
    "qwen3-next": lambda: family("Qwen3Next", linear_conv_kernel_dim=3, **QWEN_HYBRID, **QWEN_EXPERTS),
    "qwen3-5": lambda: family("Qwen3_5Text", linear_conv_kernel_dim=4, tie_word_embeddings=True, **QWEN_HYBRID),
    "qwen3-5-moe": lambda: family("Qwen3_5MoeText", linear_conv_kernel_dim=2, **QWEN_HYBRID, **QWEN_EXPERTS),
    "olmo-hybrid": lambda: family("OlmoHybrid", linear_conv_kernel_dim=3, num_hidden_layers=3, rope_parameters=None,
                                  layer_types=["linear_attention", "full_attention", "linear_attention"], **GDN),
    # Dense, then experts of which one of two groups is kept.
    "kimi-linear": lambda: family("KimiLinear", num_key_value_heads=3, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6,
                                  v_head_dim=8, num_hidden_layers=3, layer_types=["linear_attention", "full_attention",
                                                                                  "linear_attention"],
                                  mlp_layer_types=["dense", "sparse", "sparse"], linear_num_heads=3, linear_head_dim=10,
                                  linear_conv_kernel_dim=3, num_local_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1,
                                  moe_intermediate_size=14, n_shared_experts=1, routed_scaling_factor=1.5),
    "mamba2": mamba2,
    # Experts in a latent.
    "nemotron-h": lambda: family("NemotronH", num_hidden_layers=None, head_dim=10, layers_block_type=[
        "linear_attention", "mlp", "full_attention", "moe", "linear_attention"], mamba_num_heads=6, mamba_head_dim=7, n_groups=2,
                                 ssm_state_size=10, conv_kernel=4, chunk_size=16, n_routed_experts=8, num_experts_per_tok=3,
                                 n_group=2, topk_group=1, moe_intermediate_size=14, moe_shared_expert_intermediate_size=18,
                                 moe_latent_size=12, routed_scaling_factor=1.5),
    "granite-hybrid": lambda: family("GraniteMoeHybrid", num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"],
                                     mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=10, mamba_d_conv=4,
                                     mamba_chunk_size=16, num_local_experts=5, num_experts_per_tok=2, intermediate_size=14,
                                     shared_intermediate_size=18, embedding_multiplier=3.0, residual_multiplier=0.6,
                                     attention_multiplier=0.3, logits_scaling=2.5),
    "falcon-h1": lambda: family("FalconH1", head_dim=10, mamba_d_ssm=42, mamba_n_heads=6, mamba_d_head=7, mamba_n_groups=2,
                                mamba_d_state=10, mamba_d_conv=4, mamba_chunk_size=16, mamba_rms_norm=True,
                                mamba_norm_before_gate=False, embedding_multiplier=2.0, lm_head_multiplier=0.7, key_multiplier=0.6,
                                attention_in_multiplier=1.2, attention_out_multiplier=0.9, ssm_in_multiplier=1.3,
                                ssm_out_multiplier=0.8, mlp_multipliers=[0.9, 1.2], ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7]),
    "lfm2-moe": lambda: family("Lfm2Moe", num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3,
                               num_dense_layers=1, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=14,
                               tie_word_embeddings=True),
}
# Families whose files name a layer's experts as Mixtral's do.
AS_MIXTRAL = ("mixtral", "minimax_m2")
HYBRID_TYPES = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "kimi_linear", "mamba2", "nemotron_h",
                "granitemoehybrid", "falcon_h1", "lfm2_moe")


def randomize(model, generator):
    """Makes weights large enough for every part of the model to affect the logits; no bias is 0, no norm weight is 1."""
    kind = model.config.model_type
    # Norms that multiply by 1 + w.
    plus_one = kind.startswith("gemma") or kind.startswith("qwen3_next") or kind.startswith("qwen3_5")
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("A_log"):  # a token's decay is between a tenth and nearly one
            parameter.data = 0.7 * noise - 1.0
        elif name.endswith("dt_bias"):
            parameter.data = 0.7 * noise - 0.5
        elif parameter.dim() >= 2:
            table = any(part in name for part in ("wte", "embed_tokens", "embed_in", "embeddings"))
            parameter.data = noise * (0.5 if table else parameter.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = (0.0 if plus_one and not name.endswith("linear_attn.norm.weight") else 1.0) + 0.2 * noise
    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    model.tie_weights()


def mean_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def random_tokens(shape, vocabulary, generator):
    return torch.randint(1, vocabulary, shape, generator=generator)


def plain(model, tokens):
    model.zero_grad()
    logits = model(tokens[:, :-1]).logits
    loss = mean_loss(logits, tokens[:, 1:])
    loss.backward()
    out = {"tokens": tokens.int(), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, gradient in gradients(model).items():
        out["grad/" + name] = gradient
    return out


def gradients(model):
    """Gradients by names in the file; in memory GPT-NeoX's head has another name, and the experts of a layer are one tensor."""
    if model.config.model_type in HYBRID_TYPES:
        return gradients_as_saved(model)
    neox = model.config.model_type == "gpt_neox"
    out = {}
    for name, parameter in model.named_parameters():
        # A part of the model without tokens has no gradient.
        gradient = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).float().clone()
        if ".experts." in name and model.config.model_type not in FUSED:
            out |= of_experts(model.config.model_type, name, gradient)
        else:
            name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.") if model.config.model_type in AS_MIXTRAL else name
            out["embed_out.weight" if neox and name == "lm_head.weight" else name] = gradient
    return out


def gradients_as_saved(model):
    """Gradients by names in the file: those under which a model is saved whose weights are the gradients."""
    copied = copy.deepcopy(model).float()
    for parameter, original in zip(copied.parameters(), model.parameters()):
        parameter.data = torch.zeros_like(parameter) if original.grad is None else original.grad.float().clone()
    with tempfile.TemporaryDirectory() as folder:
        save(copied, pathlib.Path(folder))
        return {name: value.clone() for name, value in load_file(pathlib.Path(folder) / "model.safetensors").items()
                if not name.endswith(("e_score_correction_bias", "expert_bias"))}


def save(model, folder):
    """save_pretrained, with names and cuts of the published files where transformers 5.23 saves others."""
    model.save_pretrained(folder)
    kind, file = model.config.model_type, folder / "model.safetensors"
    if kind not in ("olmo_hybrid", "kimi_linear"):
        return
    tensors = load_file(file)
    if kind == "olmo_hybrid":  # it cuts q, k and v of the convolution into equal parts
        config = model.config
        sizes = [config.linear_num_key_heads * config.linear_key_head_dim] * 2 + [
            config.linear_num_value_heads * config.linear_value_head_dim]
        for q in [name for name in tensors if "q_conv1d" in name]:
            names = [q, q.replace("q_conv1d", "k_conv1d"), q.replace("q_conv1d", "v_conv1d")]
            whole = torch.cat([tensors[name] for name in names])
            tensors |= {name: part.clone() for name, part in zip(names, whole.split(sizes))}
        for layer, layer_type in enumerate(config.layer_types):
            name = f"model.layers.{layer}."
            if layer_type == "full_attention" and name + "feedforward_layer_norm.weight" in tensors:
                tensors[name + "post_attention_layernorm.weight"] = tensors.pop(name + "feedforward_layer_norm.weight")
    else:
        dense = [name for name in tensors if re.search(r"block_sparse_moe\.(gate|up|down)_proj", name)]
        for name in dense:
            tensors[name.replace("block_sparse_moe", "mlp")] = tensors.pop(name)
    save_file(tensors, file, {"format": "pt"})


def of_experts(model_type, name, gradient):
    """The gradient of all experts of a layer, by names in the file."""
    layer = name.split(".mlp.")[0]
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if model_type in AS_MIXTRAL else (
        "mlp", "gate_proj", "up_proj", "down_proj")
    out = {}
    for expert, whole in enumerate(gradient):
        prefix = f"{layer}.{block}.experts.{expert}."
        if name.endswith("gate_up_proj"):
            half = whole.shape[0] // 2
            out[prefix + gate + ".weight"], out[prefix + up + ".weight"] = whole[:half], whole[half:]
        else:
            out[prefix + down + ".weight"] = whole
    return out


def balanced(model, tokens):
    """The loss with the balancing loss, pooled over layers as in transformers, and its gradients."""
    model.zero_grad()
    out = model(tokens[:, :-1], output_router_logits=True)
    loss = mean_loss(out.logits, tokens[:, 1:])
    (loss + model.config.router_aux_loss_coef * out.aux_loss).backward()
    found = {"balanced/aux_loss": out.aux_loss.detach().reshape(1)}
    for name, gradient in gradients(model).items():
        found["balanced/grad/" + name] = gradient
    # Per layer, and per sequence.
    logits = out.router_logits
    k = model.config.num_experts_per_tok
    for kind, groups in (("micro_batch", 1), ("sequence", BATCH)):
        total = 0
        for layer in logits:
            for group in layer.reshape(groups, -1, layer.shape[-1]):
                probabilities = group.float().softmax(-1)
                chosen = torch.zeros_like(probabilities).scatter_(1, probabilities.topk(k, -1).indices, 1.0)
                total += group.shape[-1] / k * (chosen.mean(0) * probabilities.mean(0)).sum() / groups
        found[f"balanced/{kind}"] = total.detach().reshape(1)
    # Megatron-LM's loss over the global batch with one sequence per micro-batch: its probabilities, and the counts so far.
    total = 0
    for layer in logits:
        counts = 0
        for done, group in enumerate(layer.reshape(BATCH, -1, layer.shape[-1]), 1):
            probabilities = group.float().softmax(-1)
            counts = counts + torch.zeros_like(probabilities).scatter_(1, probabilities.topk(k, -1).indices, 1.0).sum(0)
            total += group.shape[-1] / k * (counts / (done * len(group)) * probabilities.mean(0)).sum() / BATCH
    found["balanced/global"] = total.detach().reshape(1)
    z = sum((torch.logsumexp(layer.float(), -1) ** 2).mean() for layer in logits)
    found["balanced/z_loss"] = z.detach().reshape(1)
    return found


def spread_of_bf16(model, tokens, exact):
    """The distance from fp32 of the same model in bf16 in transformers."""
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    rounded.zero_grad()
    loss = mean_loss(rounded(tokens[:, :-1]).logits.float(), tokens[:, 1:])
    loss.backward()
    out = {"bf16/loss": loss.detach().reshape(1)}
    for name, gradient in gradients(rounded).items():
        out["bf16/grad_distance/" + name] = (gradient - exact["grad/" + name]).norm().reshape(1)
    return out


def masks(config, visible):
    """The masks that transformers adds to scores: one, or one per layer type."""
    additive = lambda seen: torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
    window = getattr(config, "sliding_window", None)
    if window is None:
        return additive(visible)
    place = torch.arange(LENGTH)
    inside = visible & (place[:, None] - place[None, :] < window)
    if getattr(config, "layer_types", None) is None:
        return additive(inside)
    return {"full_attention": additive(visible), "sliding_attention": additive(inside)}


def documents(model, tokens):
    tokens = tokens.clone()
    # Documents of 1 to 20 tokens; the first row begins with an empty document, the second ends with an end-of-text token.
    for row, ends in enumerate([[0, 5, 6, 27], [11, 31, 32]]):
        tokens[row, ends] = END_OF_TEXT
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    ended = (inputs == END_OF_TEXT).int()
    segments = ended.cumsum(1) - ended
    positions = torch.zeros_like(inputs)
    for t in range(1, LENGTH):
        positions[:, t] = torch.where(segments[:, t] == segments[:, t - 1], positions[:, t - 1] + 1, 0)
    targets[inputs == END_OF_TEXT] = -1
    visible = (segments[:, :, None] == segments[:, None, :]) & torch.ones(LENGTH, LENGTH).tril().bool()
    model.zero_grad()
    if model.config.model_type == "llama4_text" or model.config.model_type in HYBRID_TYPES:
        # Chunks and temperature count from the beginning of the input, and recurrences know no documents, so run each
        # document separately.
        rows = [torch.cat([model(inputs[row, segments[row] == document][None]).logits[0]
                           for document in segments[row].unique()]) for row in range(BATCH)]
        logits = torch.stack(rows)
    else:
        logits = model(inputs, attention_mask=masks(model.config, visible), position_ids=positions).logits
    loss = mean_loss(logits, targets)
    loss.backward()

    # Check the mask above: each document by itself must have the same logits.
    for row in range(BATCH):
        for document in segments[row].unique():
            where = segments[row] == document
            alone = model(inputs[row, where][None]).logits[0]
            assert torch.allclose(alone, logits[row, where], atol=1e-5), "the document mask leaks"

    out = {"tokens": tokens.int(), "positions": positions.int(), "segments": segments.int(), "targets": targets.int(),
           "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, gradient in gradients(model).items():
        out["grad_norm/" + name] = gradient.norm().reshape(1)
    return {"document/" + name: value for name, value in out.items()}


def greedy(model, draw):
    """The first prompt with a greedy text that has no end-of-text token and no nearly tied tokens."""
    for _ in range(200):
        prompt = draw(7)
        tokens = model.generate(prompt[None], max_new_tokens=20, do_sample=False, pad_token_id=END_OF_TEXT)[0]
        best = model(tokens[None, :-1]).logits[0, len(prompt) - 1:].topk(2).values
        if len(tokens) == len(prompt) + 20 and (best[:, 0] - best[:, 1]).min().item() > 1e-2:
            return {"greedy/prompt": prompt.int(), "greedy/tokens": tokens[len(prompt):].int()}
    raise AssertionError("no prompt gives a clear text: take another seed")


def adamw(model, batches):
    # gpt-oss's expert biases have two dimensions, and the decays of Kimi Linear four.
    is_decayed = lambda name, p: p.dim() >= 2 and not name.endswith(("bias", "A_log"))
    decay = [p for name, p in model.named_parameters() if is_decayed(name, p)]
    rest = [p for name, p in model.named_parameters() if not is_decayed(name, p)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for tokens in batches:
        optimizer.zero_grad()
        loss = mean_loss(model(tokens[:, :-1]).logits, tokens[:, 1:])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    return {"adamw/tokens": batches.int(), "adamw/loss": torch.stack(losses), "adamw/grad_norm": torch.stack(norms)}


def load(folder, has_experts):
    """Loads the saved model with plain kernels: grouped ones require widths that are multiples of 16 bytes."""
    plain = {"experts_implementation": "eager"} if has_experts else {}
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **plain).train()


# Seeds with which bf16 sends no token to another expert than fp32.
SEEDS = {"nemotron-h": 101}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    models = [("llama-untied", lambda: llama(False), 11), ("llama-tied", lambda: llama(True), 12), ("gpt2", gpt2, 13)]
    models += [(name, make, 20 + i) for i, (name, make) in enumerate(FAMILIES.items())]
    models += [(name, make, 60 + i) for i, (name, make) in enumerate(EXPERTS.items())]
    models += [(name, make, SEEDS.get(name, 80 + i)) for i, (name, make) in enumerate(HYBRIDS.items())]
    for name, make, seed in models:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(seed)
        model = make()
        randomize(model, generator)
        folder = root / name
        save(model, folder)
        model = load(folder, hasattr(model.config, "num_experts_per_tok"))

        vocabulary = model.config.vocab_size
        draw = lambda *shape: random_tokens(shape, vocabulary, generator)
        tokens = draw(BATCH, LENGTH + 1)
        expected = plain(model, tokens)
        expected |= spread_of_bf16(model, tokens, expected)
        expected |= documents(model, draw(BATCH, LENGTH + 1))
        expected |= greedy(model, draw)
        expected |= adamw(model, draw(STEPS, BATCH, LENGTH + 1))
        # Llama 4's class has the coefficient but no such loss; MiniMax-M2's has that of softmax scores, which it does not use.
        if hasattr(model.config, "router_aux_loss_coef") and model.config.model_type not in ("llama4_text", "minimax_m2"):
            expected |= balanced(load(folder, True), tokens)
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, loss "
              f"{expected['loss'].item():.4f}, AdamW {expected['adamw/loss'][0]:.4f} to {expected['adamw/loss'][-1]:.4f}, "
              f"gradient norm {expected['adamw/grad_norm'][0]:.3f}")


if __name__ == "__main__":
    main()
