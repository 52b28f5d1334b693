// Exports a model for llama.cpp: its architecture's keys, its tensors' names and layouts, its tokenizer.
// To add a family, add a row to the table in gguf_families.cpp.
#pragma once

#include "checkpoint/weights.h"
#include "interop/gguf.h"
#include "models/model.h"

namespace strata::interop {

// Writes PATH; `name` is the model's name. DataError, before anything is written, for a family, a RoPE
// scaling or a tokenizer that the format or this writer cannot express.
void write_gguf_model(FileSystem& files, const Path& path, const std::string& name,
                      const models::ModelConfig& model, const checkpoint::WeightSource& weights,
                      const Path& folder, DType dtype);

// Adds tokenizer.ggml.* from FOLDER/tokenizer.json (byte-level BPE, SentencePiece's BPE or unigram) and
// tokenizer_config.json. Without a tokenizer the model is "no_vocab".
void add_tokenizer(GgufFields& fields, const Path& folder, const models::ModelConfig& model);

}  // namespace strata::interop
