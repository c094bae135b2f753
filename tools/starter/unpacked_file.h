#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "tools/starter/bundle_file.h"

namespace trainrun::starter {

/// A file that cannot be written.
struct WriteError : std::exception {
  explicit WriteError(int number) : error_number(number) {}
  int error_number;
};

/// A file as it is to be.
struct Wanted {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;
  bool is_executed = false;
};

/// Writes the member `name` to a new file. Throws WriteError, and BundleError where the member is damaged.
void write_member(const BundleFile& bundle, const std::string& name, const Wanted& wanted);

/// 64 lower-case hexadecimal digits.
std::string sha256(const std::string& bytes);

}  // namespace trainrun::starter
