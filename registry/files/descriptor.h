#pragma once

#include <string>

#include "registry/error.h"

namespace trainrun {

/// A change of the file system that failed: "runs/a/model.safetensors: cannot write: No space left on device".
class FileError : public Error {
 public:
  FileError(const std::string& path, const std::string& operation, int error_number);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

/// A file that the system did not let us read: "runs/a/state.json: cannot read: Input/output error". What is in it is
/// not known; unless it is missing, the next attempt may succeed.
class ReadError : public DataError {
 public:
  ReadError(const std::string& path, const std::string& operation, int error_number);
  /// Nothing has this name.
  bool is_missing() const;
  /// The same error, after the place at which the file is named: "list.csv:2: a.png: cannot open: …".
  ReadError named_at(const std::string& place) const { return {place + ": " + what(), error_number_}; }

 private:
  ReadError(const std::string& message, int error_number) : DataError(message), error_number_(error_number) {}
  int error_number_;
};

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
