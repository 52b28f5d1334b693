// Splits the input of a build into parts of about the same size, by file sizes only, so that the result
// depends neither on threads nor on ranks. A part is the unit of work, of resuming and of output files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/build/recipe.h"
#include "data/input/input_files.h"

namespace strata::data {

struct BuildInput {
  InputFile file;
  std::string name;  // as in reports: relative to the recipe's folder if it is below it
  int32_t source = 0;
  int64_t modified = 0;  // nanoseconds since the epoch; 0 for standard input and object stores
};

struct PartPiece {
  int32_t file = 0;
  FileRange range{};
};

struct BuildPart {
  int32_t source = 0;
  std::vector<PartPiece> pieces;
  int64_t bytes = 0;
};

struct PartPlan {
  std::vector<BuildInput> files;
  std::vector<BuildPart> parts;
  int64_t bytes = 0;
};

// The outputs of a build in build.folder, besides some files.
inline constexpr const char* kBuildOutputs[] = {"documents", "audit", "clusters", "tokens", "work"};

// Parts of a large corpus take kPartBytes; a smaller one is cut into about kPartsWanted, so that many threads
// and ranks have work, but hardly below kLeastPartBytes.
inline constexpr int64_t kPartBytes = int64_t{64} << 20;
inline constexpr int64_t kLeastPartBytes = int64_t{8} << 20;
inline constexpr int64_t kPartsWanted = 64;

// The outputs of this build are not input. Files that can be split are cut; smaller ones share a part. A part
// holds one source's files. ConfigError for a pattern that matches nothing.
PartPlan plan_parts(const Recipe& recipe, int64_t most_bytes = kPartBytes);

// Names the input by paths, sizes and times, and the cut.
std::string plan_identity(const PartPlan& plan);

}  // namespace strata::data
