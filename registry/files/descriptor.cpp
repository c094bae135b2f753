#include "registry/files/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace trainrun {
namespace {

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

FileError::FileError(const std::string& path, const std::string& operation, int error_number)
    : Error(path + ": cannot " + operation + ": " + system_text(error_number)), error_number_(error_number) {}

ReadError::ReadError(const std::string& path, const std::string& operation, int error_number)
    : DataError(path + ": cannot " + operation + ": " + system_text(error_number)), error_number_(error_number) {}

bool ReadError::is_missing() const { return error_number_ == ENOENT || error_number_ == ENOTDIR; }

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

int Descriptor::release() { return std::exchange(number_, -1); }

}  // namespace trainrun
