// A model as llama.cpp reads it: its architecture's keys, its tensors' names and orders, its tokenizer.
// Adding a family is a row of the table in gguf_model.cpp.
#pragma once

#include "checkpoint/weights.h"
#include "interop/gguf.h"
#include "models/model.h"

namespace strata::interop {

// Writes PATH. `name` is the model's. DataError for a family, a rope scaling or a tokenizer that the format
// or this writer cannot express, before anything is written.
void write_gguf_model(FileSystem& files, const Path& path, const std::string& name,
                      const models::ModelConfig& model, const checkpoint::WeightSource& weights,
                      const Path& folder, DType dtype);

// tokenizer.ggml.*, from FOLDER/tokenizer.json (byte-level BPE, SentencePiece's BPE or unigram) and
// tokenizer_config.json; a folder without a tokenizer gets "no_vocab".
void add_tokenizer(GgufFields& fields, const Path& folder, const models::ModelConfig& model);

}  // namespace strata::interop
