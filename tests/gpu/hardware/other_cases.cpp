#include <fmt/core.h>

#include "hardware/compare.h"

namespace strata::gpu_tests {
namespace {

constexpr size_t kRows = size_t{1} << 17, kManyRows = size_t{1} << 19;

struct Type {
  std::string name;
  char letter;
};
const std::vector<Type>& integer_types() {
  static const std::vector<Type> kAll = {{"u8", 'w'},  {"s8", 'w'},  {"u16", 's'}, {"s16", 's'},
                                         {"u32", 'w'}, {"s32", 'w'}, {"u64", 'l'}, {"s64", 'l'}};
  return kAll;
}
const std::vector<Type>& float_types() {
  static const std::vector<Type> kAll = {{"f16", 'h'}, {"bf16", 'b'}, {"f32", 'f'}, {"f64", 'd'}};
  return kAll;
}

unsigned bits_of(const Type& type) {
  return static_cast<unsigned>(std::stoi(type.name.substr(1)));
}

void add(std::vector<Case>& cases, const std::string& part, const std::string& instruction,
         const std::string& signature, size_t rows = kRows) {
  cases.push_back({part, instruction, signature, rows, ""});
}

void add_conversions(std::vector<Case>& cases) {
  const auto one = [&](const std::string& modifiers, const Type& to, const Type& from, size_t rows = kRows) {
    add(cases, "convert", fmt::format("cvt{}.{}.{} %D, %A;", modifiers, to.name, from.name),
        fmt::format("{}={}", to.letter, from.letter), rows);
  };
  for (const Type& to : integer_types()) {
    for (const Type& from : integer_types()) {
      if (to.name != from.name) one("", to, from, kRows / 4);
      // .sat requires a target range that does not contain the source range.
      const unsigned bits = bits_of(to), from_bits = bits_of(from);
      const bool is_signed = to.name[0] == 's', from_signed = from.name[0] == 's';
      const bool holds = is_signed == from_signed ? bits >= from_bits : is_signed && bits > from_bits;
      if (!holds) one(".sat", to, from, kRows / 4);
    }
  }
  const char* const kToInteger[] = {".rni", ".rzi", ".rmi", ".rpi"};
  const char* const kToFloat[] = {".rn", ".rz", ".rm", ".rp"};
  for (const Type& real : float_types()) {
    for (const Type& integer : integer_types()) {
      if (real.name == "bf16" && bits_of(integer) == 8) continue;  // does not exist
      for (const char* rounding : kToInteger) {
        one(rounding, integer, real);
        if (real.name == "f32") one(std::string(rounding) + ".ftz", integer, real);
      }
      for (const char* rounding : kToFloat) one(rounding, real, integer);
    }
    for (const char* rounding : kToInteger) {
      one(rounding, real, real);
      if (real.name == "f32") one(std::string(rounding) + ".ftz", real, real);
    }
    if (real.name != "bf16") one(".sat", real, real);
    if (real.name != "f32") continue;
    one(".ftz", real, real);
    one(".ftz.sat", real, real);
  }
  const Type half = {"f16", 'h'}, brain = {"bf16", 'b'}, single = {"f32", 'f'}, wide = {"f64", 'd'};
  for (const char* rounding : kToFloat) {
    for (const char* rest : {"", ".ftz", ".sat", ".ftz.sat"}) {
      one(rounding + std::string(rest), half, single, kManyRows);
      one(rounding + std::string(rest), single, wide, kManyRows);
    }
    for (const char* rest : {"", ".sat"}) one(rounding + std::string(rest), half, wide, kManyRows);
    one(rounding, brain, wide, kManyRows);
    one(rounding, brain, half);
    one(rounding, half, brain);
  }
  for (const char* rest : {"", ".ftz", ".sat", ".ftz.sat"}) {
    one(rest, single, half);
    one(rest, wide, single);
  }
  one("", single, brain);
  one("", wide, half);
  one("", wide, brain);
  for (const char* rounding : {".rn", ".rz"}) {
    for (const char* rest : {"", ".relu", ".satfinite", ".relu.satfinite"}) {
      const std::string modifiers = rounding + std::string(rest);
      one(modifiers, brain, single, kManyRows);
      if (rest != std::string("") && rest != std::string(".satfinite"))
        one(modifiers, half, single, kManyRows);
      one(modifiers, {"tf32", 'f'}, single, kManyRows);
      for (const auto& [type, letter] : {std::pair<const char*, char>{"f16x2", 'H'}, {"bf16x2", 'B'}}) {
        add(cases, "convert", fmt::format("cvt{}.{}.f32 %D, %A, %B;", modifiers, type),
            fmt::format("{}=ff", letter), kManyRows);
      }
    }
  }
  one(".rna", {"tf32", 'f'}, single, kManyRows);
  one(".rna.satfinite", {"tf32", 'f'}, single, kManyRows);
}

void add_comparisons(std::vector<Case>& cases) {
  const auto one = [&](const std::string& instruction, const std::string& signature) {
    add(cases, "compare", instruction, signature);
  };
  for (const Type& type : integer_types()) {
    if (type.name.size() == 2) continue;
    for (const char* test : {"eq", "ne", "lt", "le", "gt", "ge"})
      one(fmt::format("setp.{}.{} %D, %A, %B;", test, type.name), fmt::format("p={0}{0}", type.letter));
    if (type.name[0] != 'u') continue;
    for (const char* test : {"lo", "ls", "hi", "hs"})
      one(fmt::format("setp.{}.{} %D, %A, %B;", test, type.name), fmt::format("p={0}{0}", type.letter));
  }
  for (const Type& type : float_types()) {
    for (const char* test :
         {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}) {
      one(fmt::format("setp.{}.{} %D, %A, %B;", test, type.name), fmt::format("p={0}{0}", type.letter));
      if (type.name != "f32") continue;
      one(fmt::format("setp.{}.ftz.f32 %D, %A, %B;", test), "p=ff");
      one(fmt::format("set.{}.f32.f32 %D, %A, %B;", test), "f=ff");
      one(fmt::format("set.{}.ftz.u32.f32 %D, %A, %B;", test), "w=ff");
    }
  }
  one("setp.lt.and.s32 %D, %A, %B, %C;", "p=wwp");
  one("setp.ge.or.f32 %p3|%D, %A, %B, !%C;", "p=ffp");
  one("set.lt.s32.u32 %D, %A, %B;", "w=ww");
  one("set.le.f32.s32 %D, %A, %B;", "f=ww");
  one("selp.b16 %D, %A, %B, %C;", "s=ssp");
  one("selp.b32 %D, %A, %B, %C;", "w=wwp");
  one("selp.f64 %D, %A, %B, %C;", "d=ddp");
  one("slct.u32.s32 %D, %A, %B, %C;", "w=www");
  one("slct.f32.f32 %D, %A, %B, %C;", "f=fff");
  one("slct.ftz.f32.f32 %D, %A, %B, %C;", "f=fff");
  one("slct.b64.f32 %D, %A, %B, %C;", "l=llf");
}

void add_warps(std::vector<Case>& cases) {
  const auto one = [&](const std::string& instruction, const std::string& signature) {
    add(cases, "warp", instruction, signature);
  };
  for (const char* mode : {"up", "down", "bfly", "idx"}) {
    one(fmt::format("shfl.sync.{}.b32 %D|%p1, %A, %B, %C, -1; @!%p1 add.s32 %D, %D, 1;", mode), "w=wac");
    for (const char* bound : {"0x1f", "0", "0x181f", "0x1800"})
      one(fmt::format("shfl.sync.{}.b32 %D|%p1, %A, 3, {}, -1; @!%p1 not.b32 %D, %D;", mode, bound), "w=w");
  }
  one("vote.sync.ballot.b32 %D, %A, -1;", "w=p");
  for (const char* mode : {"all", "any", "uni"}) {
    one(fmt::format("vote.sync.{}.pred %D, %A, -1;", mode), "p=p");
    one(fmt::format("setp.ne.u32 %p1, %A, 0; vote.sync.{}.pred %D, %p1, -1;", mode), "p=g");
    one(fmt::format("mov.u32 %r5, %laneid; setp.lt.u32 %p1, %r5, %A; vote.sync.{}.pred %D, %p1, -1;", mode),
        "p=a");
  }
  one("match.any.sync.b32 %D, %A, -1;", "w=g");
  one("cvt.u64.u32 %x5, %A; match.any.sync.b64 %D, %x5, -1;", "w=g");
  one("mov.u32 %r5, %laneid; shr.u32 %r6, %r5, 5; match.all.sync.b32 %D|%p1, %r6, -1; @!%p1 not.b32 %D, "
      "%D;",
      "w=w");
  one("match.all.sync.b32 %D|%p1, %A, -1; @!%p1 not.b32 %D, %D;", "w=w");
  for (const char* operation :
       {"add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"})
    one(fmt::format("redux.sync.{} %D, %A, -1;", operation), "w=w");
  one("mov.u32 %r5, %laneid; shr.u32 %r5, %r5, 3; shl.b32 %r5, %r5, 3; mov.u32 %r6, 255; shl.b32 %r6, %r6, "
      "%r5; "
      "redux.sync.add.u32 %D, %A, %r6;",
      "w=w");
  one("movmatrix.sync.aligned.m8n8.trans.b16 %D, %A;", "w=w");
  const std::string tile =
      ".shared .align 16 .b8 tile[2048]; mov.u32 %r4, tile; mov.u32 %r5, %tid.x; shl.b32 %r5, %r5, 4; "
      "add.s32 %r4, %r4, %r5;"
      " st.shared.v4.b32 [%r4], {%A, %B, %C, %E}; bar.sync 0; ";
  for (const char* turned : {"", ".trans"}) {
    one(tile + fmt::format("ldmatrix.sync.aligned.m8n8.x1{}.shared.b16 {{%D}}, [%r4];", turned), "w=wwww");
    one(tile + fmt::format("ldmatrix.sync.aligned.m8n8.x2{}.shared.b16 {{%r6, %D}}, [%r4];", turned),
        "w=wwww");
    for (const char* order :
         {"%D, %r6, %r7, %r8", "%r6, %D, %r7, %r8", "%r6, %r7, %D, %r8", "%r6, %r7, %r8, %D"})
      one(tile + fmt::format("ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{{}}}, [%r4];", turned, order),
          "w=wwww");
    for (const auto& [count, list] :
         {std::pair<const char*, const char*>{"x1", "%A"}, {"x2", "%A, %B"}, {"x4", "%A, %B, %C, %E"}}) {
      one(tile + fmt::format("stmatrix.sync.aligned.m8n8.{}{}.shared.b16 [%r4], {{{}}}; bar.sync 0; "
                             "ld.shared.b32 %D, [%r4+4];",
                             count, turned, list),
          "w=wwww");
    }
  }
}

// Each row has a separate word, so that the order of atomics does not matter.
void add_memory(std::vector<Case>& cases) {
  const auto one = [&](const std::string& operation, const std::string& type, char letter,
                       bool has_old = true) {
    const std::string width = letter == 'l' || letter == 'd'                    ? "64"
                              : letter == 's' || letter == 'h' || letter == 'b' ? "16"
                                                                                : "32";
    const std::string old = letter == 'l' || letter == 'd' ? "%x5" : width == "16" ? "%h5" : "%r5";
    const std::string signature = fmt::format("{0}={0}{0}", letter);
    const std::string begin = fmt::format("st.global.b{} [%x1], %A; ", width);
    const std::string end = fmt::format(" ld.global.b{} %D, [%x1];", width);
    add(cases, "memory", fmt::format("{}red.global.{}.{} [%x1], %B;{}", begin, operation, type, end),
        signature);
    if (!has_old) return;
    add(cases, "memory",
        fmt::format("{}atom.global.{}.{} {}, [%x1], %B;{}", begin, operation, type, old, end), signature);
    add(cases, "memory", fmt::format("{}atom.global.{}.{} %D, [%x1], %B;", begin, operation, type),
        signature);
    add(cases, "memory",
        fmt::format(".shared .align 8 .b64 cell[128]; mov.u32 %r4, cell; mov.u32 %r6, %tid.x; shl.b32 %r6, "
                    "%r6, 3; add.s32 %r4, %r4, "
                    "%r6; st.shared.b{} [%r4], %A; atom.shared.{}.{} {}, [%r4], %B; ld.shared.b{} %D, [%r4];",
                    width, operation, type, old, width),
        signature);
  };
  for (const char* type : {"u32", "s32"}) {
    for (const char* operation : {"add", "min", "max"}) one(operation, type, 'w');
  }
  for (const char* operation : {"and", "or", "xor"}) one(operation, "b32", 'w');
  for (const char* operation : {"inc", "dec"}) one(operation, "u32", 'w');
  for (const char* operation :
       {"min.u64", "max.u64", "min.s64", "max.s64", "add.u64", "and.b64", "or.b64", "xor.b64"}) {
    const std::string text = operation;
    one(text.substr(0, text.size() - 4), text.substr(text.size() - 3), 'l');
  }
  one("add", "f32", 'f');
  one("add", "f64", 'd');
  one("add.noftz", "f16", 'h');
  one("add.noftz", "f16x2", 'H');
  one("add.noftz", "bf16", 'b');
  one("add.noftz", "bf16x2", 'B');
  add(cases, "memory",
      "st.global.b32 [%x1], %A; atom.global.cas.b32 %r5, [%x1], %B, %C; ld.global.b32 %D, [%x1];", "w=ggw");
  add(cases, "memory",
      "st.global.b64 [%x1], %A; atom.global.cas.b64 %x5, [%x1], %B, %C; ld.global.b64 %D, [%x1];", "l=lll");
  add(cases, "memory",
      "st.global.b16 [%x1], %A; atom.global.cas.b16 %h5, [%x1], %A, %B; ld.global.b16 %D, [%x1];", "s=ss");
  add(cases, "memory", "st.global.b32 [%x1], %A; atom.global.exch.b32 %D, [%x1], %B;", "w=ww");
  for (const char* type : {"u8", "s8", "u16", "s16", "u32", "s32", "b64"})
    add(cases, "memory", fmt::format("st.global.b64 [%x1], %A; ld.global.{} %D, [%x1];", type), "l=l");
  for (const char* type : {"b8", "b16", "b32"})
    add(cases, "memory",
        fmt::format("st.global.b64 [%x1], %A; st.global.{} [%x1], %B; ld.global.b64 %D, [%x1];", type),
        "l=lw");
}

}  // namespace

std::vector<Case> other_cases() {
  std::vector<Case> cases;
  add_conversions(cases);
  add_comparisons(cases);
  add_warps(cases);
  add_memory(cases);
  return cases;
}

std::vector<std::string> case_parts() {
  return {"integer", "float", "approximate", "convert", "compare", "warp", "memory"};
}

std::vector<Case> cases_of(const std::string& part) {
  std::vector<Case> cases = arithmetic_cases();
  for (Case& one : other_cases()) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const Case& one) { return one.part != part; });
  return cases;
}

}  // namespace strata::gpu_tests
