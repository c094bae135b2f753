#include "registry/formats/text/pattern_matcher.h"

#include "registry/language/error.h"

namespace trainrun {

PatternMatcher::PatternMatcher(const JsonNode& node) {
  node.only({"String", "Regex"});
  const auto literal = node.find_text("String"), regex = node.find_text("Regex");
  if (literal.has_value() == regex.has_value()) node.fail("expected one of \"String\" and \"Regex\"");
  if (literal) {
    if (literal->empty()) node.fail("an empty \"String\" matches nothing");
    literal_ = *literal;
    return;
  }
  try {
    regex_.emplace(*regex);
  } catch (const DataError& error) {
    node.fail(error.what());
  }
}

}  // namespace trainrun
