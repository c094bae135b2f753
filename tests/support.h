#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sanitizers.h"

namespace trainrun::test {

using Strings = std::vector<std::string>;

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The message of the E that `body` throws.
template <class E, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

/// How many random cases are tried: `usual`, a sixth of them under the sanitizers, or what TRAINRUN_FUZZ_ROUNDS says.
inline int fuzz_rounds(int usual) {
  const char* wanted = std::getenv("TRAINRUN_FUZZ_ROUNDS");
  return wanted ? static_cast<int>(std::strtol(wanted, nullptr, 10)) : kIsSanitized ? (usual + 5) / 6 : usual;
}

/// An environment variable, set or unset while this lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~EnvironmentVariable() { set(before_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace trainrun::test
