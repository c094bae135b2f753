#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/language/error.h"
#include "runner/recipe/yaml.h"
#include "tests/doctest.h"

namespace trainrun::test {

struct Parsed {
  Value value;
  std::vector<Problem> problems;

  std::string errors() const {
    std::vector<std::string> lines;
    for (const Problem& problem : problems) lines.push_back(problem.to_string());
    return join(lines, "\n");
  }
};

inline Parsed parse(const std::string& text) {
  Parsed parsed;
  parsed.value = parse_yaml(text, std::make_shared<const std::string>("a.yaml"), parsed.problems);
  return parsed;
}

inline Value parse_good(const std::string& text) {
  const Parsed parsed = parse(text);
  INFO(text);
  CHECK(parsed.errors() == "");
  return parsed.value;
}

}  // namespace trainrun::test
