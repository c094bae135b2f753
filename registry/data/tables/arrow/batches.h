#pragma once

#include <arrow/io/type_fwd.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type_fwd.h>

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/tables/arrow_library.h"
#include "registry/language/error.h"

// The record batches of a file. Here and in the sources of this folder alone is Arrow included.

namespace trainrun {

/// The columns of a file, so many rows at a time. What is wrong is a DataError that names the file, and the row group.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual const arrow::Schema& schema() const = 0;
  /// Says, before the first batch, which columns are read: by their places, ascending, at least one.
  virtual void select(const std::vector<int>& places) = 0;
  /// The next rows of these columns, whose every value has been checked to lie within it; null at the end.
  virtual std::shared_ptr<arrow::RecordBatch> next() = 0;
};

/// Of a Parquet file, of which a few pages of each column are in memory at a time.
std::unique_ptr<Batches> parquet_batches(const std::string& path, std::shared_ptr<arrow::io::ReadableFile> file);

enum class IpcFormat { kFile, kStream };
/// Of a file in Arrow's own format, of which a record batch is in memory at a time.
std::unique_ptr<Batches> ipc_batches(const std::string& path, std::shared_ptr<arrow::io::ReadableFile> file,
                                     IpcFormat format);

std::unique_ptr<ParquetFile> create_parquet(const std::string& path, std::span<const ParquetColumn> columns);

/// Throws what Arrow found wrong at `place` ("FILE: row group 3") as a DataError.
[[noreturn]] void fail(const std::string& place, const std::string& fault);

inline void require(const arrow::Status& status, const std::string& place) {
  if (!status.ok()) fail(place, status.IsOutOfMemory() ? "out of memory: " + status.message() : status.message());
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& place) {
  require(result.status(), place);
  return std::move(result).ValueUnsafe();
}

/// Calls `body`, which calls Arrow, and makes a DataError of what is thrown.
template <class Body>
auto guarded(const std::string& place, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(place, "out of memory: it asks for more than there is");
  } catch (const std::exception& error) {
    fail(place, error.what());
  }
}

}  // namespace trainrun
