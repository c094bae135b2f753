#include "registry/data/tables/arrow_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "registry/data/data_file.h"
#include "registry/data/data_files.h"
#include "registry/formats/files/regular_file.h"
#include "registry/language/error.h"

namespace trainrun {

const ArrowLibrary& open_arrow_library(const std::string& library, const std::string& file) {
  std::error_code unreadable;
  if (!std::filesystem::exists(library, unreadable)) {
    throw DataError(
        file +
        ": Parquet and Arrow files are read and written by a part that this trainrun was built without (there is no " +
        library + "); run tools/setup --arrow, which fetches what it needs and builds it");
  }
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char* reason = dlerror();
    throw DataError(
        file + ": the libraries for Parquet and Arrow files cannot be opened (" +
        std::string(reason ? reason : library) +
        "); run tools/setup --arrow, which fetches them, or, where pip installed this trainrun, pip install "
        "pyarrow==" +
        kArrowVersion);
  }
  auto* const get = reinterpret_cast<const ArrowLibrary* (*)()>(dlsym(opened, "trainrun_arrow_library"));
  if (!get) throw DataError(file + ": " + library + " was built for another trainrun; build it again");
  return *get();
}

bool is_arrow_file(const std::string& path) {
  const auto ends = [&](std::string_view extension) {
    return !has_extension(path, ".gz") && has_extension(path, extension);
  };
  return ends(".parquet") || ends(".arrow") || ends(".feather");
}

namespace {

const ArrowLibrary& library_for(const std::string& path) {
  static const ArrowLibrary& library = open_arrow_library(library_beside("libtrainrun_arrow.so"), path);
  return library;
}

}  // namespace

std::unique_ptr<TableReader> open_arrow_table(const std::string& path, ObjectColumns objects) {
  open_regular_file(path);  // what is wrong with the file itself is said first
  return library_for(path).open(path, objects);
}

std::string arrow_metadata(const std::string& path, const std::string& key) {
  open_regular_file(path);
  return library_for(path).metadata(path, key);
}

std::unique_ptr<ParquetFile> create_parquet_file(const std::string& path, std::span<const ParquetColumn> columns) {
  return library_for(path).create(path, columns);
}

void for_each_arrow_row(const std::string& path, const std::vector<std::string>& columns,
                        const std::function<void(std::vector<Cell>& row, int64_t number)>& take) {
  const auto reader = open_arrow_table(path, ObjectColumns::kRefused);
  const std::vector<std::string>& names = reader->names();
  std::vector<size_t> places;
  for (const std::string& column : columns) {
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end()) throw DataError(path + ": has no column '" + column + "'" + suggestion(column, names));
    places.push_back(static_cast<size_t>(found - names.begin()));
  }
  reader->read_only(places);
  std::vector<Cell> all;
  std::vector<Cell> row(columns.size());
  while (reader->next(all)) {
    for (size_t i = 0; i < places.size(); ++i) row[i] = std::move(all[places[i]]);
    take(row, reader->row_number());
  }
}

std::string text_in(Cell& cell, const std::string& place) {
  switch (cell.kind) {
    case Cell::Kind::kText:
      return std::move(cell.text);
    case Cell::Kind::kMissing:
      throw DataError(place + ": the value is missing, expected a string");
    case Cell::Kind::kInteger:
    case Cell::Kind::kNumber:
      throw DataError(place + ": expected a string, found " + (cell.is_boolean ? "a boolean" : "a number"));
    case Cell::Kind::kList:
    case Cell::Kind::kObject:
      break;
  }
  throw DataError(place + ": expected a string, found " + (cell.kind == Cell::Kind::kList ? "a list" : "an object"));
}

}  // namespace trainrun
