#pragma once

#include "models/model.h"

namespace strata::models {
extern const Family kLlama;
}
