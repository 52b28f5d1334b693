#include "base/toml.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/suggest.h"

namespace strata {
namespace {

class TomlTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("strata_toml_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_ / "sub");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  Path folder_;
};

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

ConfigValue parse(const std::string& text) {
  return parse_toml(text, "a.toml");
}

TEST_F(TomlTest, ValuesKnowTheirLine) {
  const ConfigValue root = parse("x = 1\n[t]\ny = [\n 1,\n 2]\n[[l]]\nz = true\n[[l]]\nz = \"s\"\n");
  EXPECT_EQ(root.find("x")->origin.line, 1);
  EXPECT_EQ(root.find("t")->find("y")->origin.line, 3);
  const auto& list = std::get<ConfigValue::Array>(root.find("l")->data);
  EXPECT_EQ(list[1].find("z")->origin.line, 9);
  EXPECT_EQ(to_string(list[1].find("z")->origin), "a.toml:9");
  EXPECT_EQ(to_toml(root), "{ x = 1, t = { y = [1, 2] }, l = [{ z = true }, { z = \"s\" }] }");
}

TEST_F(TomlTest, SyntaxErrorsNameFileAndLine) {
  EXPECT_NE(error_of([] { parse("a = 1\nb = = 2\n"); }).find("[a.toml:2] this is not TOML"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse("a = 1\na = 2\n"); }).find("a.toml:2"), std::string::npos);
  EXPECT_NE(error_of([] { parse("a = 1979-05-27\n"); }).find("quote it"), std::string::npos);
}

TEST_F(TomlTest, IncludesAreRelativeToTheirFolder) {
  write("sub/deep.toml", "[t]\na = 1\nb = 1\n");
  write("sub/base.toml", "include = \"deep.toml\"\n[t]\nb = 2\nlist = [1, 2]\n");
  const ConfigValue root =
      read_toml(write("top.toml", "include = [\"sub/base.toml\"]\n[t]\nc = 3\nlist = [9]\n"));
  EXPECT_EQ(to_toml(*root.find("t")), "{ a = 1, b = 2, list = [9], c = 3 }");
  EXPECT_TRUE(root.find("t")->find("a")->origin.file.ends_with("deep.toml"));
  EXPECT_EQ(root.find("include"), nullptr);
}

TEST_F(TomlTest, RejectsIncludeCyclesAndMissingFiles) {
  const Path one = write("one.toml", "include = [\"two.toml\"]\n");
  write("two.toml", "include = [\"sub/../one.toml\"]\n");
  EXPECT_NE(error_of([&] { read_toml(one); }).find("found a cycle"), std::string::npos);
  const Path lost = write("lost.toml", "\ninclude = [\"nowhere.toml\"]\n");
  const std::string message = error_of([&] { read_toml(lost); });
  EXPECT_NE(message.find("lost.toml:2"), std::string::npos) << message;
  EXPECT_NE(message.find("nowhere.toml"), std::string::npos) << message;
  EXPECT_NE(error_of([&] { read_toml(write("odd.toml", "include = 5\n")); }).find("expected a list"),
            std::string::npos);
  EXPECT_THROW(read_toml(folder_ / "absent.toml"), ConfigError);
  // Two files may share a base.
  write("base.toml", "a = 1\n");
  write("left.toml", "include = [\"base.toml\"]\n");
  EXPECT_EQ(to_toml(read_toml(write("both.toml", "include = [\"base.toml\", \"left.toml\"]\n"))),
            "{ a = 1 }");
}

// Each file includes the next twice: 2^30 reads.
TEST_F(TomlTest, LimitsTheGrowthOfIncludes) {
  for (int i = 0; i < 30; ++i) {
    const std::string next = std::to_string(i + 1) + ".toml";
    write(std::to_string(i) + ".toml", "include = [\"" + next + "\", \"" + next + "\"]\n");
  }
  write("30.toml", "a = 1\n");
  const std::string doubling = error_of([&] { read_toml(folder_ / "0.toml"); });
  EXPECT_NE(doubling.find("0.toml"), std::string::npos) << doubling;
  EXPECT_NE(doubling.find("at most 200"), std::string::npos) << doubling;
  EXPECT_EQ(*read_toml(folder_ / "25.toml").find("a")->get_if<int64_t>(), 1);

  for (const std::string part : {"a", "\"a b\"", "'a.b' "}) {
    std::string key = part;
    for (int i = 0; i < 100000; ++i) key += "." + part;
    for (const std::string& text : {key + " = 1\n", "[" + key + "]\n", "x = { " + key + " = 1 }\n"}) {
      EXPECT_NE(error_of([&] {
                  parse_toml("\n" + text, "deep");
                }).find("[deep:2] found a key with more than 32 parts"),
                std::string::npos)
          << part;
    }
  }
  const std::string prose =
      "# ................................................................ \na = \"One. Two words. Three more "
      "words. " +
      std::string(200, '.') + "\"\nb.c.d.e.f.g = 1.5\n";
  EXPECT_EQ(error_of([&] { parse_toml(prose, "prose"); }), "no error");

  const Path huge = write("huge.toml", "a = 1\n#" + std::string(size_t{3} << 20, 'x') + "\n");
  EXPECT_NE(error_of([&] { read_toml(huge); }).find("expected at most"), std::string::npos);
  EXPECT_NE(error_of([&] { read_toml("/dev/zero"); }).find("device"), std::string::npos);
}

TEST_F(TomlTest, SetsTakeTomlValuesAndBareWords) {
  ConfigValue root = parse("[t]\na = 1\n[[l]]\nw = 1\n");
  for (const char* set : {"t.a=2", "t.b=word", "t.c=[1, \"x\"]", "t.d=\"quoted\"", "u.v.w=1e-3", "l.0.w=5",
                          "t.e=10min", "t.f=a=b", "t.g=", "t.h=true", "t.i=2024-01-01"}) {
    apply_set(root, set);
  }
  EXPECT_EQ(
      to_toml(root),
      "{ t = { a = 2, b = \"word\", c = [1, \"x\"], d = \"quoted\", e = \"10min\", f = \"a=b\", g = \"\", "
      "h = true, i = \"2024-01-01\" }, l = [{ w = 5 }], u = { v = { w = 0.001 } } }");
  EXPECT_EQ(to_string(root.find("t")->find("a")->origin), "--set t.a");
}

TEST_F(TomlTest, RejectsBadSets) {
  ConfigValue root = parse("a = 1\n[[l]]\nw = 1\n");
  EXPECT_NE(error_of([&] { apply_set(root, "a"); }).find("expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of([&] { apply_set(root, ".a=1"); }).find("expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of([&] { apply_set(root, "=1"); }).find("expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(error_of([&] { apply_set(root, "a.b=1"); }).find("not a table"), std::string::npos);
  EXPECT_NE(error_of([&] { apply_set(root, "l.1.w=1"); }).find("below 1"), std::string::npos);
  EXPECT_NE(error_of([&] { apply_set(root, "x=[1,"); }).find("begins like a TOML list"), std::string::npos);
  EXPECT_EQ(to_toml(root), "{ a = 1, l = [{ w = 1 }] }");
}

TEST_F(TomlTest, WrittenValuesRoundTrip) {
  for (const char* text :
       {"1", "-5", "1.0", "1e-08", "0.1", "3e+300", "inf", "true", "\"a\\nb\\\"\\\\\\u0001é\"", "[]",
        "[[1], [2.5]]", "{ a = 1, \"odd key\" = { b = \"x\" } }"}) {
    const ConfigValue value = *parse(std::string("v = ") + text).find("v");
    EXPECT_TRUE(same_value(value, *parse("v = " + to_toml(value)).find("v")))
        << text << " " << to_toml(value);
  }
  EXPECT_FALSE(same_value(*parse("v = 1").find("v"), *parse("v = 1.0").find("v")));
}

TEST(SuggestTest, Distances) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("lenght", "length"), 1u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
}

TEST(SuggestTest, NearestName) {
  const std::vector<std::string> names = {"sequence_length", "steps", "tokens", "clip_grad_norm"};
  EXPECT_EQ(nearest_name("sequence_lenght", names), "sequence_length");
  EXPECT_EQ(nearest_name("Sequence-Length", names), "sequence_length");
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("clip", names), "clip_grad_norm");
  EXPECT_EQ(nearest_name("banana", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
}

}  // namespace
}  // namespace strata
