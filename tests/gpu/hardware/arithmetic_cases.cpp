#include <fmt/core.h>

#include "hardware/compare.h"

namespace strata::gpu_tests {
namespace {

constexpr size_t kRows = size_t{1} << 17, kManyRows = size_t{1} << 21;

class Table {
 public:
  void part(const std::string& name, size_t rows) {
    part_ = name;
    rows_ = rows;
  }
  void add(const std::string& instruction, const std::string& signature, const std::string& note = "") {
    cases.push_back({part_, instruction, signature, rows_, note});
  }
  // "opcode %D, %A, …;" with one operand per letter.
  void plain(const std::string& opcode, const std::string& signature, const std::string& note = "") {
    static const char* const kNames[] = {"", " %A", " %A, %B", " %A, %B, %C", " %A, %B, %C, %E"};
    add(fmt::format("{} %D,{};", opcode, kNames[signature.size() - 2]), signature, note);
  }
  std::vector<Case> cases;

 private:
  std::string part_;
  size_t rows_ = 0;
};

std::string repeated(char letter, size_t operands) {
  return std::string(1, letter) + "=" + std::string(operands, letter);
}

void add_integers(Table& t) {
  t.part("integer", kRows);
  for (const auto& [type, letter, wide] : {std::tuple<std::string, char, char>{"u16", 's', 'w'},
                                           {"s16", 's', 'w'},
                                           {"u32", 'w', 'l'},
                                           {"s32", 'w', 'l'},
                                           {"u64", 'l', ' '},
                                           {"s64", 'l', ' '}}) {
    for (const char* opcode : {"add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"})
      t.plain(fmt::format("{}.{}", opcode, type), repeated(letter, 2));
    for (const char* opcode : {"mad.lo", "mad.hi"})
      t.plain(fmt::format("{}.{}", opcode, type), repeated(letter, 3));
    if (wide == ' ') continue;
    t.plain("mul.wide." + type, fmt::format("{}={}{}", wide, letter, letter));
    t.plain("mad.wide." + type, fmt::format("{}={}{}{}", wide, letter, letter, wide));
    const char total = letter == 's' ? 's' : 'w';
    t.plain("sad." + type, fmt::format("{}={}{}{}", total, letter, letter, total));
  }
  for (const char* opcode :
       {"add.sat.s32", "sub.sat.s32", "mul24.lo.u32", "mul24.lo.s32", "mul24.hi.u32", "mul24.hi.s32"})
    t.plain(opcode, "w=ww");
  for (const char* opcode : {"mad.hi.sat.s32", "mad24.lo.u32", "mad24.lo.s32", "mad24.hi.u32", "mad24.hi.s32",
                             "dp4a.u32.u32", "dp4a.u32.s32", "dp4a.s32.u32", "dp4a.s32.s32"})
    t.plain(opcode, "w=www");
  for (const auto& [width, letter] : {std::pair<int, char>{16, 's'}, {32, 'w'}, {64, 'l'}}) {
    t.plain(fmt::format("neg.s{}", width), repeated(letter, 1));
    t.plain(fmt::format("abs.s{}", width), repeated(letter, 1));
    for (const char* opcode : {"and", "or", "xor"})
      t.plain(fmt::format("{}.b{}", opcode, width), repeated(letter, 2));
    for (const char* opcode : {"not", "cnot"})
      t.plain(fmt::format("{}.b{}", opcode, width), repeated(letter, 1));
    for (const char* opcode : {"shl.b", "shr.b", "shr.u", "shr.s"})
      t.plain(fmt::format("{}{}", opcode, width), fmt::format("{0}={0}a", letter));
    if (width == 16) continue;
    for (const char* kind : {"u", "s"}) {
      t.plain(fmt::format("bfe.{}{}", kind, width), fmt::format("{0}={0}aa", letter));
      t.plain(fmt::format("bfind.{}{}", kind, width), fmt::format("w={}", letter));
      t.plain(fmt::format("bfind.shiftamt.{}{}", kind, width), fmt::format("w={}", letter));
    }
    t.plain(fmt::format("bfi.b{}", width), fmt::format("{0}={0}{0}aa", letter));
    t.plain(fmt::format("popc.b{}", width), fmt::format("w={}", letter));
    t.plain(fmt::format("clz.b{}", width), fmt::format("w={}", letter));
    t.plain(fmt::format("brev.b{}", width), repeated(letter, 1));
  }
  t.add("add.cc.u32 %D, %A, %B; addc.u32 %D, %C, 0;", "w=www");
  t.add("sub.cc.u32 %D, %A, %B; subc.u32 %D, %C, 0;", "w=www");
  t.add("add.cc.u64 %D, %A, %B; addc.cc.u64 %D, %C, %C; addc.u64 %D, 0, 0;", "l=lll");
  t.add("sub.cc.u64 %D, %A, %B; subc.u64 %D, %C, %A;", "l=lll");
  t.add("mad.lo.cc.u32 %D, %A, %B, %C; madc.hi.u32 %D, %A, %B, %C;", "w=www");
  t.add("mad.lo.cc.u64 %D, %A, %B, %C; madc.hi.u64 %D, %A, %B, %C;", "l=lll");
  t.add("mad.hi.cc.s32 %D, %A, %B, %C; addc.u32 %D, 0, 0;", "w=www");
  for (int table = 1; table < 256; table += 6)
    t.add(fmt::format("lop3.b32 %D, %A, %B, %C, {};", table), "w=www");
  for (const char* mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"})
    t.plain(fmt::format("prmt.b32{}", mode), "w=www");
  for (const char* opcode : {"shf.l.wrap.b32", "shf.l.clamp.b32", "shf.r.wrap.b32", "shf.r.clamp.b32"})
    t.plain(opcode, "w=wwa");
  for (const char* mode : {"clamp", "wrap"}) {
    t.plain(fmt::format("bmsk.{}.b32", mode), "w=aa");
    t.plain(fmt::format("szext.{}.s32", mode), "w=wa");
    t.plain(fmt::format("szext.{}.u32", mode), "w=wa");
  }
}

void add_floats(Table& t) {
  t.part("float", 2 * kRows);
  for (const char* rounding : {"rn", "rz", "rm", "rp"}) {
    for (const char* ftz : {"", ".ftz"}) {
      for (const char* sat : {"", ".sat"}) {
        for (const char* opcode : {"add", "sub", "mul"})
          t.plain(fmt::format("{}.{}{}{}.f32", opcode, rounding, ftz, sat), "f=ff");
        t.plain(fmt::format("fma.{}{}{}.f32", rounding, ftz, sat), "f=fff");
      }
      t.plain(fmt::format("mad.{}{}.f32", rounding, ftz), "f=fff");
      t.plain(fmt::format("div.{}{}.f32", rounding, ftz), "f=ff");
      t.plain(fmt::format("rcp.{}{}.f32", rounding, ftz), "f=f");
      t.plain(fmt::format("sqrt.{}{}.f32", rounding, ftz), "f=f");
    }
    for (const char* opcode : {"add", "sub", "mul", "div"})
      t.plain(fmt::format("{}.{}.f64", opcode, rounding), "d=dd");
    t.plain(fmt::format("fma.{}.f64", rounding), "d=ddd");
    t.plain(fmt::format("rcp.{}.f64", rounding), "d=d");
    t.plain(fmt::format("sqrt.{}.f64", rounding), "d=d");
  }
  for (const char* opcode : {"min", "max"}) {
    for (const char* ftz : {"", ".ftz"}) {
      for (const char* rest : {"", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"})
        t.plain(fmt::format("{}{}{}.f32", opcode, ftz, rest), "f=ff");
    }
    t.plain(fmt::format("{}.f64", opcode), "d=dd");
    for (const auto& [type, letter] :
         {std::pair<std::string, char>{"f16", 'h'}, {"f16x2", 'H'}, {"bf16", 'b'}, {"bf16x2", 'B'}}) {
      for (const char* rest : {"", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"}) {
        t.plain(fmt::format("{}{}.{}", opcode, rest, type), repeated(letter, 2));
        if (type[0] == 'f') t.plain(fmt::format("{}.ftz{}.{}", opcode, rest, type), repeated(letter, 2));
      }
    }
  }
  for (const auto& [type, letter] :
       {std::pair<std::string, char>{"f16", 'h'}, {"f16x2", 'H'}, {"bf16", 'b'}, {"bf16x2", 'B'}}) {
    for (const char* opcode : {"add.rn", "sub.rn", "mul.rn"}) {
      t.plain(fmt::format("{}.{}", opcode, type), repeated(letter, 2));
      if (type[0] != 'f') continue;
      for (const char* rest : {".ftz", ".sat", ".ftz.sat"})
        t.plain(fmt::format("{}{}.{}", opcode, rest, type), repeated(letter, 2));
    }
    for (const char* rest : {"", ".relu", ".ftz", ".sat", ".ftz.sat", ".ftz.relu", ".oob"}) {
      if (type[0] == 'b' && rest[0] != '\0' && std::string(rest) != ".relu") continue;
      t.plain(fmt::format("fma.rn{}.{}", rest, type), repeated(letter, 3));
    }
    for (const char* opcode : {"neg", "abs"}) {
      t.plain(fmt::format("{}.{}", opcode, type), repeated(letter, 1));
      if (type[0] == 'f') t.plain(fmt::format("{}.ftz.{}", opcode, type), repeated(letter, 1));
    }
  }
  for (const char* opcode : {"neg", "abs"}) {
    for (const char* ftz : {"", ".ftz"}) t.plain(fmt::format("{}{}.f32", opcode, ftz), "f=f");
    t.plain(fmt::format("{}.f64", opcode), "d=d");
  }
  t.plain("copysign.f32", "f=ff");
  t.plain("copysign.f64", "d=dd");
  for (const char* test : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}) {
    t.plain(fmt::format("testp.{}.f32", test), "p=f");
    t.plain(fmt::format("testp.{}.f64", test), "p=d");
  }
}

void add_approximations(Table& t) {
  t.part("approximate", kManyRows);
  for (const char* ftz : {"", ".ftz"}) {
    for (const char* opcode : {"ex2", "lg2", "rcp", "rsqrt", "sqrt"})
      t.plain(fmt::format("{}.approx{}.f32", opcode, ftz), "f=f");
    for (const char* opcode : {"sin", "cos"}) {
      t.plain(fmt::format("{}.approx{}.f32", opcode, ftz), "f=o", "within pi");
      t.plain(fmt::format("{}.approx{}.f32", opcode, ftz), "f=O", "within 100000");
      t.plain(fmt::format("{}.approx{}.f32", opcode, ftz), "f=f", "any");
    }
    t.plain(fmt::format("ex2.approx{}.f32", ftz), "f=o", "within pi");
    t.plain(fmt::format("div.approx{}.f32", ftz), "f=ff");
    t.plain(fmt::format("div.full{}.f32", ftz), "f=ff");
    t.plain(fmt::format("rsqrt.approx{}.f64", ftz), "d=d");
  }
  t.plain("tanh.approx.f32", "f=f");
  t.plain("tanh.approx.f32", "f=o", "within pi");
  t.plain("ex2.approx.f16", "h=h");
  t.plain("ex2.approx.f16x2", "H=H");
  t.plain("tanh.approx.f16", "h=h");
  t.plain("tanh.approx.f16x2", "H=H");
  t.plain("tanh.approx.bf16", "b=b");
  t.plain("tanh.approx.bf16x2", "B=B");
  t.plain("ex2.approx.ftz.bf16", "b=b");
  t.plain("ex2.approx.ftz.bf16x2", "B=B");
  t.plain("rcp.approx.ftz.f64", "d=d");
}

}  // namespace

std::vector<Case> arithmetic_cases() {
  Table table;
  add_integers(table);
  add_floats(table);
  add_approximations(table);
  return std::move(table.cases);
}

}  // namespace strata::gpu_tests
