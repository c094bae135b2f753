#include "registry/language/name_regex.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "registry/language/error.h"
#include "registry/language/pattern.h"

namespace trainrun {

TEST_CASE("a recipe's patterns mean what ECMAScript says") {
  struct Case {
    std::string pattern, text;
    bool is_found;
  };
  const std::vector<Case> cases = {
      {"bias$", "fc.bias", true},
      {"bias$", "fc.bias2", false},
      {"^layer[12]", "layer1.0", true},
      {"^layer[12]", "xlayer1", false},
      {"^(?!head)", "head.weight", false},
      {"^(?!head)", "body.weight", true},
      {"\\.norm\\d+\\.", "a.norm12.x", true},
      {"[^.]$", "a.", false},
      {"^[^$^]+$", "a$b", false},
      {"a|b$", "xa_", true},
      {"(.)\\1", "hello", true},
      {"^b", "a\nb", false},
      {"a$", "a\nb", false},
      {"a$", "a\n", false},
      {"\\$", "a$", true},
      {"", "anything", true},
      {"\xc3", "\xc3\xa9", true},
  };
  for (const Case& one : cases) {
    INFO(one.pattern, " in ", one.text);
    CHECK(regex_of(one.pattern).is_in(one.text) == one.is_found);
  }
  CHECK(whole_regex_of("h\\.\\d+|wte").is_in("h.12"));
  CHECK_FALSE(whole_regex_of("h\\.\\d+|wte").is_in("h.12.attn"));
}

TEST_CASE("what a pattern matched is replaced as std::regex_replace does") {
  CHECK(regex_of("^module\\.").replaced("module.fc.module.bias", "") == "fc.module.bias");
  CHECK(regex_of("(\\w+)\\.(gamma|beta)$").replaced("bert.norm.gamma", "$1-$2-$&-$$-$9") ==
        "bert.norm-gamma-norm.gamma-$-");
  CHECK(regex_of("a").replaced("banana", "o") == "bonono");
  CHECK(regex_of("x*").replaced("ab", "-") == "-a-b-");
}

TEST_CASE("neither long texts, nor long or deep patterns, nor hopeless ones harm the program") {
  const std::string letters(100'000, 'a');
  CHECK(regex_of("^[^.]*$").is_in(letters));
  CHECK(regex_of("^((a|b)*)*$").is_in(letters));
  CHECK(regex_of(std::string(30'000, 'a')).is_in(letters));
  CHECK(pattern_fault(std::string(30'000, '(')).find("is not a regular expression: ") != std::string::npos);
  const std::string deep = std::string(30'000, '(') + std::string(30'000, ')');
  CHECK(pattern_fault(deep).find("is not a regular expression: ") != std::string::npos);
  CHECK_THROWS_WITH_AS(regex_of("^(a+)+$").is_in(std::string(60, 'a') + "b"), doctest::Contains("fails on a text: "),
                       DataError);
}

}  // namespace trainrun
