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
import sys

import torch
from safetensors.torch import save_file
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
}


def randomize(model, generator):
    """Makes weights large enough for every part of the model to affect the logits; no bias is 0, no norm weight is 1."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() >= 2:
            table = any(part in name for part in ("wte", "embed_tokens", "embed_in"))
            parameter.data = noise * (0.5 if table else parameter.shape[-1] ** -0.5)
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            # Gemma's norms multiply by 1 + w.
            parameter.data = (0.0 if model.config.model_type.startswith("gemma") else 1.0) + 0.2 * noise
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
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
    neox = model.config.model_type == "gpt_neox"
    out = {}
    for name, parameter in model.named_parameters():
        # A part of the model without tokens has no gradient.
        gradient = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).float().clone()
        if ".experts." in name and model.config.model_type not in FUSED:
            out |= of_experts(model.config.model_type, name, gradient)
        else:
            name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.") if model.config.model_type == "mixtral" else name
            out["embed_out.weight" if neox and name == "lm_head.weight" else name] = gradient
    return out


def of_experts(model_type, name, gradient):
    """The gradient of all experts of a layer, by names in the file."""
    layer = name.split(".mlp.")[0]
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if model_type == "mixtral" else (
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
    if model.config.model_type == "llama4_text":
        # Chunks and temperature count from the beginning of the input, so run each document separately.
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
    is_decayed = lambda name, p: p.dim() >= 2 and not name.endswith("bias")  # gpt-oss's expert biases have two dimensions
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


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"
    models = [("llama-untied", lambda: llama(False), 11), ("llama-tied", lambda: llama(True), 12), ("gpt2", gpt2, 13)]
    models += [(name, make, 20 + i) for i, (name, make) in enumerate(FAMILIES.items())]
    models += [(name, make, 60 + i) for i, (name, make) in enumerate(EXPERTS.items())]
    for name, make, seed in models:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(seed)
        model = make()
        randomize(model, generator)
        folder = root / name
        model.save_pretrained(folder)
        model = load(folder, name in EXPERTS)

        vocabulary = model.config.vocab_size
        draw = lambda *shape: random_tokens(shape, vocabulary, generator)
        tokens = draw(BATCH, LENGTH + 1)
        expected = plain(model, tokens)
        expected |= spread_of_bf16(model, tokens, expected)
        expected |= documents(model, draw(BATCH, LENGTH + 1))
        expected |= greedy(model, draw)
        expected |= adamw(model, draw(STEPS, BATCH, LENGTH + 1))
        # Llama 4's class has the coefficient but no such loss.
        if hasattr(model.config, "router_aux_loss_coef") and model.config.model_type != "llama4_text":
            expected |= balanced(load(folder, True), tokens)
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, loss "
              f"{expected['loss'].item():.4f}, AdamW {expected['adamw/loss'][0]:.4f} to {expected['adamw/loss'][-1]:.4f}, "
              f"gradient norm {expected['adamw/grad_norm'][0]:.3f}")


if __name__ == "__main__":
    main()
