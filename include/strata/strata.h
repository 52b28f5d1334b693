// Strata as a library: pretraining of language models from C++. Link Strata::strata (CMake) or `pkg-config strata`.
//
// config.h  configurations            train.h  plans and training
// data.h    data builds, tokenizers   model.h  logits, text, losses of trained models
// error.h   errors and log lines
//
// Only these headers are the library's interface. Each states its rules of threads, ownership, errors and stability.
// The version is semantic: within 0.x programs that compiled compile again; the shared library's name changes with x.
#pragma once

#include "strata/config.h"
#include "strata/data.h"
#include "strata/error.h"
#include "strata/model.h"
#include "strata/train.h"
