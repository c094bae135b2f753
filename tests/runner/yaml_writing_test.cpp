#include <random>
#include <string>

#include "registry/language/interpolation.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"
#include "tests/runner/yaml_support.h"

namespace trainrun {
namespace {

using test::parse;
using test::parse_good;
using test::Parsed;

Value text(const std::string& content) { return Value::scalar(content, /*quoted=*/true, {}); }
Value plain(const std::string& content) { return Value::scalar(content, /*quoted=*/false, {}); }

}  // namespace

TEST_CASE("YAML is written as a person writes recipes") {
  const std::string recipe =
      "name: mnist_cnn\n"
      "seed: 42\n"
      "plugins: []\n"
      "model:\n"
      "  layers:\n"
      "    - {type: Conv2d, out_channels: 32, kernel_size: [3, 3]}\n"
      "    - ReLU\n"
      "    - type: Residual\n"
      "      main:\n"
      "        - {type: Linear, out_features: 128}\n"
      "        - ReLU\n"
      "metrics: [Accuracy]\n"
      "dataloader: {batch_size: 32, shuffle: true, path: 'a, b', note: 'it''s: so'}\n"
      "optimizer: {type: AdamW, lr: 1e-3, max_grad_norm: null}\n"
      "distributed_type: 'NO'\n"
      "mixed_precision: 'no'\n"
      "url: http://x/y#z\n"
      "text: a, b [c]\n"
      "number_as_text: '12'\n"
      "long:\n"
      "  - aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
      "  - bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
      "lines: \"one\\ntwo\\t\"\n";
  CHECK(to_yaml(parse_good(recipe)) == recipe);
}

TEST_CASE("texts that YAML would read otherwise are quoted") {
  const char* texts[] = {"",
                         " ",
                         "a ",
                         " a",
                         "a: b",
                         "a:",
                         ":",
                         ":a",
                         "a #b",
                         "#",
                         "# a",
                         "-",
                         "- a",
                         "---",
                         "--- a",
                         "...",
                         "-a",
                         "?",
                         "? a",
                         "?a",
                         "[",
                         "]",
                         "{a}",
                         "}",
                         "a, b",
                         ",",
                         "&a",
                         "*a",
                         "!a",
                         "|",
                         ">",
                         "'",
                         "\"",
                         "%a",
                         "@a",
                         "`a",
                         "~",
                         "null",
                         "NULL",
                         "true",
                         "False",
                         "12",
                         "-3",
                         "1e3",
                         ".5",
                         "010",
                         "0x1F",
                         "1_000",
                         "2024-01-01",
                         "12:30:45",
                         "no",
                         "NO",
                         "y",
                         ".inf",
                         ".NaN",
                         "<<",
                         "=",
                         "a\nb",
                         "\n",
                         "a\n",
                         "\ta",
                         "a\tb",
                         "\\",
                         "\\n",
                         "it's",
                         "'a'",
                         "\"a\" b",
                         "${name}",
                         "$${name}",
                         "x${a}y",
                         "\x01",
                         "\x7F",
                         "\xC2\x85",
                         "\xE2\x80\xA8",
                         "\xEF\xBB\xBF",
                         "\xEF\xBF\xBE",
                         "é",
                         "漢字",
                         "😀",
                         "a\rb",
                         "a,b",
                         "a]",
                         "key: [",
                         "a:b",
                         "::",
                         "a\\",
                         "'",
                         "''",
                         "''''",
                         "a'b''c",
                         "*",
                         "&",
                         "!",
                         "!!str a",
                         "%YAML 1.2"};
  for (const char* content : texts) {
    for (const Value& value :
         {text(content), Value::list({text(content), text("x")}, {}), Value::map({{content, {}, text(content)}}, {}),
          Value::map({{"k", {}, Value::map({{content, {}, Value::list({text(content)}, {})}}, {})}}, {}),
          Value::list({Value::map({{"k", {}, Value::list({Value::map({{content, {}, text(content)}}, {})}, {})}}, {})},
                      {})}) {
      const std::string yaml = to_yaml(value);
      INFO(yaml);
      const Parsed parsed = parse(yaml);
      CHECK(parsed.errors() == "");
      CHECK(same_meaning(parsed.value, value));
    }
  }
  CHECK(to_yaml(text(std::string("\0", 1))) == "\"\\u0000\"\n");
  CHECK(parse_good(to_yaml(text(std::string("\0", 1)))).text() == std::string("\0", 1));
}

TEST_CASE("plain scalars keep their type when they are written") {
  for (const char* content :
       {"1", "-1", "+1", "1e-3", ".5", "5.", "1E+5", "true", "FALSE", "no", "abc", "a: b", " x", "010"}) {
    const Value value = Value::map({{"k", {}, plain(content)}, {"l", {}, Value::list({plain(content)}, {})}}, {});
    INFO(to_yaml(value));
    CHECK(same_meaning(parse_good(to_yaml(value)), value));
  }
}

namespace {

/// Random values made of strings that are hard to write.
class RandomValues {
 public:
  explicit RandomValues(unsigned seed) : random_(seed) {}

  Value next(int depth = 0) {
    const size_t kind = below(depth > 4 ? 4 : 8);
    if (kind == 0) return Value::null({});
    if (kind <= 2) return text(nasty());
    if (kind == 3) return plain(kPlain[below(std::size(kPlain))]);
    const size_t count = below(5);
    if (kind <= 5) {
      std::vector<Value> items;
      for (size_t i = 0; i < count; ++i) items.push_back(next(depth + 1));
      return Value::list(std::move(items), {});
    }
    Value map = Value::map({}, {});
    for (size_t i = 0; i < count; ++i) map.set(nasty(), {}, next(depth + 1));
    return map;
  }

 private:
  static constexpr const char* kPlain[] = {"1", "-2.5", "1e-3", "true", "no", "word", "0"};
  static constexpr const char* kPieces[] = {"a",    "B",
                                            "1",    " ",
                                            "  ",   ":",
                                            ": ",   " #",
                                            "#",    "-",
                                            "- ",   "?",
                                            ",",    "[",
                                            "]",    "{",
                                            "}",    "&",
                                            "*",    "!",
                                            "|",    ">",
                                            "'",    "\"",
                                            "%",    "@",
                                            "`",    "\n",
                                            "\t",   "\\",
                                            "${",   "}",
                                            "$",    "null",
                                            "no",   "1e3",
                                            "é",    "\xE2\x80\xA9",
                                            "\x1B", "~",
                                            "=",    "<<",
                                            "---",  "...",
                                            "😀"};
  size_t below(size_t bound) { return random_() % bound; }
  std::string nasty() {
    std::string result;
    for (size_t i = below(6); i-- > 0;) result += kPieces[below(std::size(kPieces))];
    return result;
  }

  std::mt19937 random_;
};

}  // namespace

TEST_CASE("parsing what was written gives the same value, whatever the strings") {
  RandomValues values(1);
  for (int i = 0; i < 3000; ++i) {
    const Value value = values.next();
    const std::string yaml = to_yaml(value);
    const Parsed parsed = parse(yaml);
    if (parsed.problems.empty() && same_meaning(parsed.value, value)) continue;
    FAIL_CHECK(yaml, parsed.errors());
  }
}

}  // namespace trainrun
