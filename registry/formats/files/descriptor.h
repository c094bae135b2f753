#pragma once

#include <string>

#include "registry/language/error.h"

namespace trainrun {

/// A file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int number() const { return number_; }
  int release();

 private:
  int number_;
};

}  // namespace trainrun
