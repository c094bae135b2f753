#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "registry/data/tables/table_reader.h"

namespace trainrun {

/// The release of Arrow that libtrainrun_arrow.so is built with and runs on: PyPI's pyarrow of this version has it.
/// cmake/Arrow.cmake reads this line.
inline constexpr const char* kArrowVersion = "26.0.1";

/// Whether columns of a file may hold objects (structs): tables have no use for them, conversations consist of them.
enum class ObjectColumns { kRefused, kRead };

/// A column of a Parquet file that is written: of one kind, and of lists of `width` numbers where that is not 0.
struct ParquetColumn {
  enum class Kind { kText, kInteger, kNumber, kSingle, kBoolean };  // kSingle: float32
  std::string name;
  Kind kind = Kind::kText;
  int64_t width = 0;
};
/// Some rows of a column: what its kind says, one value after another.
struct ParquetValues {
  std::span<const std::string> texts = {};
  const void* numbers = nullptr;            // int64_t, double, float, bool
  std::span<const uint8_t> are_there = {};  // of each row: 0: it has no value; empty: all have one
};

/// A Parquet file that grows beside the name that it gets in the end.
class ParquetFile {
 public:
  virtual ~ParquetFile() = default;
  /// As many values as the file has columns. Throws FileError, as `finish` does.
  virtual void write(std::span<const ParquetValues> values, int64_t rows) = 0;
  /// The file gets its name.
  virtual void finish() = 0;
};

/// What libtrainrun_arrow.so gives (registry/data/tables/arrow). It alone is linked with Arrow.
struct ArrowLibrary {
  std::unique_ptr<TableReader> (*open)(const std::string& path, ObjectColumns objects);
  std::unique_ptr<ParquetFile> (*create)(const std::string& path, std::span<const ParquetColumn> columns);
  std::string (*metadata)(const std::string& path, const std::string& key);
};

/// Opens libtrainrun_arrow.so at `library`. Throws DataError where that cannot be, which names `file`, for which it is
/// wanted, and what to do.
const ArrowLibrary& open_arrow_library(const std::string& library, const std::string& file);

/// Whether the name of a file says that Arrow reads it: .parquet, .arrow, .feather.
bool is_arrow_file(const std::string& path);

/// Opens a Parquet file, or one in Arrow's own formats (Feather 2, streams), whatever its name; so the library is opened
/// here and nowhere before. Row groups are read a piece at a time. The rows' numbers count from 1; a null, and a number
/// that is NaN, is a missing value; dates and times are texts as ISO 8601 has them. Throws DataError.
std::unique_ptr<TableReader> open_arrow_table(const std::string& path, ObjectColumns objects);

/// What the metadata of such a file's schema hold under `key`; "" for nothing. Throws DataError.
std::string arrow_metadata(const std::string& path, const std::string& key);

/// Creates a Parquet file. Throws DataError where the library cannot be opened, FileError.
std::unique_ptr<ParquetFile> create_parquet_file(const std::string& path, std::span<const ParquetColumn> columns);

/// Calls `take` with each row, a cell for each of `columns`, in their order, and the row's number, from 1. Throws
/// DataError, also where the file lacks a column.
void for_each_arrow_row(const std::string& path, const std::vector<std::string>& columns,
                        const std::function<void(std::vector<Cell>& row, int64_t number)>& take);

/// The text in a cell, which is moved out of it. Throws DataError, which begins with `place`, where it holds none.
std::string text_in(Cell& cell, const std::string& place);

}  // namespace trainrun
