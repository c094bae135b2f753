#include "runner/interop/script_names.h"

#include <algorithm>

#include "runner/base/ascii_name.h"
#include "runner/interop/python/expression.h"

namespace trainrun {
namespace {

/// What the code of a module calls by these names itself.
const std::set<std::string>& names_of_code() {
  static const std::set<std::string> names = {"CONSTANTS", "Dict",     "List",          "Optional",      "Tensor",
                                              "Tuple",     "annotate", "bool",          "float",         "getattr",
                                              "inf",       "int",      "nan",           "ops",           "self",
                                              "str",       "torch",    "uninitialized", "unchecked_cast"};
  return names;
}

bool is_ascii(const std::string& name) {
  return std::ranges::all_of(name, [](unsigned char c) { return c >= ' ' && c < 0x7f; });
}

}  // namespace

std::string ScriptNames::argument(const std::string& name) {
  std::string wanted = ascii_name(name, "_", '_');
  if (names_of_code().contains(wanted)) wanted += '_';
  if (!python::is_identifier(wanted)) wanted.insert(0, "field_");
  return given(name, wanted);
}

std::string ScriptNames::attribute(const std::string& name) {
  const std::string plain = ascii_name(name, "_", '_');
  const bool is_word_of_python = plain == name && !python::is_identifier(name) && python::is_identifier(name + "_");
  if (is_word_of_python || names_of_code().contains(name)) return given(name, name + "_");
  return given(name, is_ascii(name) ? name : plain);
}

std::string ScriptNames::given(const std::string& name, std::string wanted) {
  while (!given_.insert(wanted).second) wanted += '_';
  if (wanted != name) changed_[name] = wanted;
  return wanted;
}

}  // namespace trainrun
