// All families, one file each.
#pragma once

#include <array>

#include "models/model.h"

namespace strata::models {

extern const Family kLlama;    // llama.cpp
extern const Family kMistral;  // mistral.cpp
extern const Family kQwen2;    // qwen.cpp
extern const Family kQwen3;
extern const Family kMixtral;   // mixtral.cpp
extern const Family kQwen2Moe;  // qwen_moe.cpp
extern const Family kQwen3Moe;
extern const Family kOlmoe;    // olmoe.cpp
extern const Family kGptOss;   // gpt_oss.cpp
extern const Family kLlama4;   // llama4.cpp
extern const Family kGlm4Moe;  // glm4_moe.cpp
extern const Family kOlmo;     // olmo.cpp
extern const Family kOlmo2;
extern const Family kOlmo3;      // olmo3.cpp
extern const Family kSmolLm3;    // smollm3.cpp
extern const Family kMiniMaxM2;  // minimax_m2.cpp
extern const Family kGemma2;     // gemma.cpp
extern const Family kGemma3;
extern const Family kPhi3;        // phi3.cpp
extern const Family kGptNeoX;     // gpt_neox.cpp
extern const Family kGpt2;        // gpt2.cpp
extern const Family kStarCoder2;  // starcoder2.cpp
extern const Family kStableLm;    // stablelm.cpp
extern const Family kDeepseekV2;  // deepseek.cpp
extern const Family kDeepseekV3;
extern const Family kKimiK2;
extern const Family kDeepseekV32;  // deepseek_sparse.cpp
extern const Family kGlmDsa;
extern const Family kQwen3Next;  // qwen_next.cpp
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kOlmoHybrid;     // olmo_hybrid.cpp
extern const Family kKimiLinear;     // kimi_linear.cpp
extern const Family kMamba2;         // mamba2.cpp
extern const Family kNemotronH;      // nemotron_h.cpp
extern const Family kGraniteHybrid;  // granite_hybrid.cpp
extern const Family kFalconH1;       // falcon_h1.cpp
extern const Family kLfm2Moe;        // lfm2_moe.cpp
extern const Family kBert;           // bert.cpp
extern const Family kT5;             // t5.cpp
extern const Family kSwitch;         // switch.cpp

// In the order of docs/models.md and `strata presets`.
inline constexpr std::array kFamilies{
    &kLlama,         &kMistral,   &kQwen2,      &kQwen3,      &kOlmo,       &kOlmo2,       &kOlmo3,
    &kSmolLm3,       &kGemma2,    &kGemma3,     &kPhi3,       &kGptNeoX,    &kGpt2,        &kStarCoder2,
    &kStableLm,      &kMixtral,   &kQwen2Moe,   &kQwen3Moe,   &kOlmoe,      &kGptOss,      &kLlama4,
    &kGlm4Moe,       &kMiniMaxM2, &kDeepseekV2, &kDeepseekV3, &kKimiK2,     &kDeepseekV32, &kGlmDsa,
    &kQwen3Next,     &kQwen35,    &kQwen35Moe,  &kOlmoHybrid, &kKimiLinear, &kMamba2,      &kNemotronH,
    &kGraniteHybrid, &kFalconH1,  &kLfm2Moe,    &kBert,       &kT5,         &kSwitch,
};

}  // namespace strata::models
